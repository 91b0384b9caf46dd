// What is done, and the question before it: what will happen, in words, before anything is written.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Refused } from "./store";
import type { Outcome } from "./types";

export interface Action { verb: string; namespace?: string; name?: string; value?: string; manifest?: string }

// act asks the server what an action would do, shows it, and does it when the person says so.
export function act(action: Action, question: string, done?: (o: Outcome) => void): void {
  const at = document.createElement("div");
  document.body.append(at);
  const close = () => { render(null, at); at.remove(); };
  render(<Confirm action={action} question={question} close={close} done={done} />, at);
}

function Confirm(p: { action: Action; question: string; close: () => void; done?: ((o: Outcome) => void) | undefined }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
    ask<Outcome>("/api/act", p.action).then(setOutcome, setError);
  }, []);
  const confirm = async () => {
    setBusy(true);
    try {
      const o = await ask<Outcome>("/api/act", { ...p.action, confirm: true });
      dialog.current?.close();
      p.done?.(o);
    } catch (e) {
      setError(e as Refused);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={p.close} aria-labelledby="question">
      <h2 id="question">{p.question}</h2>
      {!outcome && !error && <p class="dim">Asking what would happen …</p>}
      {outcome?.says?.map((s) => <p key={s}>{s}</p>)}
      {outcome?.plans?.map((plan) => <p key={plan.job}>{plan.headline}</p>)}
      {error && <div class="failed" role="alert"><strong>{error.denied ? "You may not do this." : "This cannot be done."}</strong><span>{error.message}</span></div>}
      <div class="actions">
        <button type="button" class="ghost" onClick={() => dialog.current?.close()}>Cancel</button>
        <button type="button" class="primary" disabled={!outcome || busy || !!error} onClick={() => void confirm()} data-confirm>Do it</button>
      </div>
    </dialog>
  );
}
