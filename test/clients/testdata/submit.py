"""Submits a job to a queue and watches it to its end, with the Python client of Kubernetes."""
import sys

from kubernetes import client, config, watch

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
namespace, queue = sys.argv[1:]
config.load_kube_config()
batch, objects = client.BatchV1Api(), client.CustomObjectsApi()

container = client.V1Container(
    name="main", image="example.com/train:1",
    resources=client.V1ResourceRequirements(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"}))
template = client.V1PodTemplateSpec(
    metadata=client.V1ObjectMeta(annotations={"sandbox.elasticai.io/run-for": "1s"}),
    spec=client.V1PodSpec(containers=[container], restart_policy="Never"))
job = batch.create_namespaced_job(namespace, client.V1Job(
    metadata=client.V1ObjectMeta(name="from-python", labels={"kueue.x-k8s.io/queue-name": queue}),
    spec=client.V1JobSpec(parallelism=2, completions=2, template=template)))
print("created", "suspended" if job.spec.suspend else "running")


def mine(workload):
    return any(owner["uid"] == job.metadata.uid for owner in workload["metadata"].get("ownerReferences", []))


for event in watch.Watch().stream(objects.list_namespaced_custom_object, GROUP, VERSION, namespace, "workloads"):
    if mine(event["object"]):
        print("workload in queue", event["object"]["spec"]["queueName"])
        break

started = False
for event in watch.Watch().stream(batch.list_namespaced_job, namespace, field_selector="metadata.name=from-python"):
    now = event["object"]
    if not started and not now.spec.suspend:
        started = True
        print("started")
    if any(c.type == "Complete" and c.status == "True" for c in now.status.conditions or []):
        print("succeeded", now.status.succeeded)
        break

for event in watch.Watch().stream(objects.list_namespaced_custom_object, GROUP, VERSION, namespace, "workloads"):
    status = event["object"].get("status", {})
    true = {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}
    if mine(event["object"]) and "Finished" in true:
        print("admitted by its ClusterQueue, finished" if status["admission"]["clusterQueue"] == namespace else status)
        break
