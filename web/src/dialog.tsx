// A question with one line to answer it.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function askFor(question: string, note: string, value: string, then: (v: string) => void): void {
  const at = document.createElement("div");
  document.body.append(at);
  const close = () => { render(null, at); at.remove(); };
  render(<Question question={question} note={note} value={value} then={then} close={close} />, at);
}

function Question(p: { question: string; note: string; value: string; then: (v: string) => void; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [value, set] = useState(p.value);
  useEffect(() => dialog.current?.showModal(), []);
  const done = (e: Event) => {
    e.preventDefault();
    dialog.current?.close();
    p.then(value.trim());
  };
  return (
    <dialog ref={dialog} onClose={p.close} aria-label={p.question}>
      <form class="form" onSubmit={done}>
        <label class="field"><span>{p.question}</span><input value={value} onInput={(e) => set(e.currentTarget.value)} /></label>
        <p class="dim">{p.note}</p>
        <div class="actions">
          <button type="button" class="ghost" onClick={() => dialog.current?.close()}>Cancel</button>
          <button type="submit" class="primary">Go on</button>
        </div>
      </form>
    </dialog>
  );
}
