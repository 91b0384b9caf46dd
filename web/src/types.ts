// Records as internal/web/records.go sends them.
export interface Share { pod: string; core: number; memory: number; queue?: string; workload?: string }
export interface Process { pid: number; pod?: string; container?: string; memory?: number; swapped?: number }
export interface Card {
  name: string; index: number; model?: string; state: string; message?: string;
  memory: number; load?: number; power?: number; shares?: Share[]; processes?: Process[];
}
export interface Node { name: string; ready: boolean; cordoned?: boolean; model?: string; cards: Card[] }
export interface Quota {
  flavor: string; resource: string; nominal: number; used: number; borrowed: number; lends?: number; borrows?: number;
}
export interface Queue {
  name: string; cohort?: string; strategy: string; status: string; why?: string; pending: number; admitted: number;
  share: number; localQueues: string[]; quotas: Quota[];
}
export interface Cohort { name: string; parent?: string; share?: number; quotas: Quota[] }
export interface Job {
  namespace: string; name: string; kind?: string; job?: string; local: string; queue?: string; state: string;
  reason?: string; message?: string; priority: number; class?: string; created: number; since: number;
  admitted?: number; ends?: number; pods: number; cards: number; largest?: number; evicted?: number; pricePerHour?: number; paid?: number;
}
export interface Problem { what: string; denied?: boolean; message: string }

export interface Me {
  user: string; signedIn: boolean; prometheus: boolean; cluster: string; namespace: string; version: string;
  prices: Record<string, number> | null; currency: string;
}

export interface Place {
  namespace: string; name: string; local: string; position: number; priority: number; created: string;
  startsAt?: string; reason?: string; message?: string;
}

// What the queue says of a workload: api/visibility/v1alpha1.
export interface WorkloadRef { namespace?: string; name?: string; job?: string; clusterQueue?: string; priority: number; rule?: string }
export interface Missing {
  podSet?: string; resource?: string; flavor?: string; amount?: string; clusterQueue?: string; cohort?: string; reason: string;
}
export interface Standing {
  state: string; reason?: string; message?: string; localQueue?: string; clusterQueue?: string; position?: number;
  ahead?: WorkloadRef[]; missing?: Missing[]; heldBy?: WorkloadRef[]; preemptionTargets?: WorkloadRef[];
  suggestions?: string[]; startsAt?: string;
  podSets?: { name: string; count: number; flavors?: Record<string, string>; nodes?: { name: string; pods: number; cards?: number[] }[] }[];
  checks?: { name: string; state: string; message?: string }[];
}
export interface Instance {
  name: string; status: string; ageSeconds: number; isChief: boolean; requestedGPUs: number; node?: string; cards?: string;
}
export interface JobView {
  record: Job; headline: string; because?: string;
  answer?: { job: string; status: string; standing?: Standing; pods?: string; warnings?: string[]; note?: string };
  info?: { type: string; name: string; status: string; requestedGPUs: number; allocatedGPUs?: number; instances: Instance[]; nodes?: string[] };
  asks: { name: string; count: number; requests: Record<string, string> }[];
  timeline: { at: string; what: string; message?: string; about?: string; warning?: boolean; count?: number }[];
  problems?: string[];
}
export interface Outcome {
  says: string[] | null; done: boolean;
  plans?: { job: string; headline: string; because?: string; plan: Standing & { startsNow: boolean } }[];
}
export interface PastOfCard { times: number[] | null; load: (number | null)[] | null; given: number[] | null }
export interface Past {
  times: number[] | null;
  queues: Record<string, { used: number[]; nominal: number[]; waiting: number[]; running: number[]; evicted: number[]; cost?: number[] }>;
}

// What other quotas would change: api/visibility/v1alpha1.
export interface PlannedStart extends WorkloadRef { startsAt?: string; wouldStart?: string }
export interface QuotaPlan { pending: number; complete: boolean; startNow: number; wouldStart: number; sooner?: PlannedStart[]; later?: PlannedStart[] }
