"""The section several of test/gpu/run: containers of several processes are moved together, or not at all."""
import concurrent.futures, glob, json, os, signal, subprocess, time

GIB = 1 << 30


def hold_all(c, pids):
    """As the agent does (internal/agent/backend/gpushare/hold.go): all wait, and those with nothing in flight let one call
    through at a time, until a round without steps finds nothing in flight anywhere. None, or what went wrong."""
    if len(pids) < 2:
        return None
    end, step = time.time() + 30, False
    with concurrent.futures.ThreadPoolExecutor(len(pids)) as lanes:
        while time.time() < end:
            request = ("hold", "step") if step else ("hold",)
            answers = list(lanes.map(lambda pid: c.ask(*request, pid=pid), pids))
            bad = [a for a in answers if not a.get("ok")]
            if bad:
                return bad[0]
            if not step and all(a["settled"] for a in answers):
                return None
            step = not step
    return {"ok": False, "reason": "what they have in flight does not end"}


def ask_all(t, c, word):
    """As the agent does: first how they are, and nothing moves if one says that it cannot; then all are held, and move one after
    the other. If that fails all come back."""
    pids = [os.path.basename(s)[:-5] for s in sorted(glob.glob(f"{c.dir}/run/control/*.sock"))]
    answers = {pid: a for pid in pids if (a := c.ask("stats", pid=pid)).get("ok")}
    stays = [a["immovable"] for a in answers.values() if a.get("immovable")]
    if word == "out" and stays:
        return {"ok": False, "reason": stays[0], "processes": len(answers)}
    bad = hold_all(c, list(answers)) if word == "out" else None
    moved = []
    for pid in answers:
        if not bad:
            moved.append(c.ask(word, pid=pid))
            bad = None if moved[-1].get("ok") else moved[-1]
    if bad and word == "out":
        for pid in answers:
            c.ask("in", pid=pid)
    return bad or {"ok": True, "bytes": sum(m.get("bytes", 0) for m in moved), "processes": len(moved)}


def begin(t, name, kind, container):
    ready, stop = (os.path.join(t.WORK, f"{name}-{container is not None}.{x}") for x in ("ready", "stop"))
    how = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if kind == "rank" else []
    argv = ["python3", *how, f"{t.HERE}/several_work.py", kind, ready, stop]
    env = dict(os.environ, OMP_NUM_THREADS="2")
    kw = dict(env=env, start_new_session=True)
    p = container.start(*argv, **kw) if container else subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    t.started.append(p)
    return p, ready, stop


def plain(t, name, kind):
    p, _, stop = begin(t, name, kind, None)
    open(stop, "w").close()
    out, err = p.communicate(timeout=120)
    return out.strip() or err.strip()[-300:]


def moved(t, name, kind):
    c = t.Container("several-" + name, memory=20 * GIB, extra=("swap on",))
    p, ready, stop = begin(t, name, kind, c)
    t.wait_for(ready, 90, p)
    answers = []
    for _ in range(10):
        answers += [ask_all(t, c, "out"), ask_all(t, c, "in")]
        if not all(a.get("ok") for a in answers):
            break
    open(stop, "w").close()
    out, err = p.communicate(timeout=120)
    return out.strip() or err.strip()[-300:], answers


def same(t, name, kind, what):
    try:
        want, (got, answers) = plain(t, name, kind), moved(t, name, kind)
        bad = [a for a in answers if not a.get("ok")]
        t.row(f"{what}: swapped {len(answers) // 2} times, same result", f"{want} without, {got} with {bad or ''}; {max(a.get('processes', 0) for a in answers)} processes, "
              f"{max(a.get('bytes', 0) for a in answers) >> 20} MiB", not bad and "hash" in want and want == got)
    except Exception as e:
        t.row(what, f"{type(e).__name__}: {e}", False)


def given(t, kind, what):
    """Tensors that two processes write to at once: both leave the card and come back, and the tensors are the same ones still."""
    try:
        want = plain(t, kind, kind)
        if "hash" not in want:
            t.note(f"{what}: not possible here without the library either", want)
            return
        c = t.Container("given-" + kind, memory=20 * GIB, extra=("swap on",))
        p, ready, stop = begin(t, "given-" + kind, kind, c)
        t.wait_for(ready, 90, p)
        here = [a for s in glob.glob(f"{c.dir}/run/control/*.sock") if (a := c.ask("stats", pid=os.path.basename(s)[:-5])).get("ok")]
        t.note(f"{what}: what each process counts, in MiB", ", ".join(f"held {d['held'] >> 20} overhead {d['overhead'] >> 20} of {d['used'] >> 20}" for a in here for d in a["devices"]))
        answers = []
        for _ in range(10):
            answers += [ask_all(t, c, "out"), ask_all(t, c, "in")]
            if not all(a.get("ok") for a in answers):
                break
        open(stop, "w").close()
        try:
            out, err = p.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = "", p.communicate()[1]
        got, bad = out.strip() or err.strip()[-300:], [a for a in answers if not a.get("ok")]
        t.row(f"{what}: swapped {len(answers) // 2} times, same result", f"{want} without, {got} with {bad or ''}; {max(a.get('processes', 0) for a in answers)} processes, "
              f"{max(a.get('bytes', 0) for a in answers) >> 20} MiB", not bad and len(answers) == 20 and want == got)
    except Exception as e:
        t.row(what, f"{type(e).__name__}: {e}", False)


def shared(t):
    try:
        want = plain(t, "shared", "shared")
        held = t.Container("shared-held", memory=20 * GIB)
        p, _, _ = begin(t, "shared-held", "shared", held)
        out, err = p.communicate(timeout=90)
        t.row("a tensor on the card is given to another process of the container", f"{want} without, {out.strip() or err[-200:]} with", out.strip() == want)
        c = t.Container("shared-swap", memory=20 * GIB, extra=("swap on",))
        p, _, _ = begin(t, "shared-swap", "shared", c)
        try:
            out, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # PyTorch says what is wrong in a thread, and waits, as does its other process
            os.killpg(p.pid, signal.SIGKILL)
            out, err = "", p.communicate()[1]
        t.row("the same where it can be swapped", out.strip() or next((l for l in err.splitlines() if "rror" in l), err[-200:]), out.strip() == want)
    except Exception as e:
        t.row("a tensor on the card is given to another process of the container", f"{type(e).__name__}: {e}", False)


GRAPH = r'''
import ctypes, sys, torch
rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps") if "libcudart" in l][0])
x = torch.zeros(1 << 26, device="cuda"); torch.cuda.synchronize()
g, node, e = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
class Params(ctypes.Structure): _fields_ = [("b", ctypes.c_ubyte * 88), ("access", ctypes.c_void_p), ("n", ctypes.c_size_t), ("bytes", ctypes.c_size_t), ("ptr", ctypes.c_void_p)]
p = Params()
ctypes.memmove(p.b, (ctypes.c_int * 4)(1, 0, 1, 0), 16)
p.bytes = 256 << 20
r = [rt.cudaGraphCreate(ctypes.byref(g), 0), rt.cudaGraphAddMemAllocNode(ctypes.byref(node), g, None, 0, ctypes.byref(p)), rt.cudaGraphInstantiate(ctypes.byref(e), g, 0), rt.cudaGraphLaunch(e, None), rt.cudaDeviceSynchronize()]
print(r, flush=True)
sys.stdin.readline()
'''


ARRAY = r'''
import ctypes, sys, torch
x = torch.zeros(1 << 28, device="cuda")
class Desc(ctypes.Structure): _fields_ = [("w", ctypes.c_size_t), ("h", ctypes.c_size_t), ("d", ctypes.c_size_t), ("f", ctypes.c_int), ("c", ctypes.c_uint), ("flags", ctypes.c_uint)]
a = ctypes.c_void_p()
print(ctypes.CDLL("libcuda.so.1").cuArray3DCreate_v2(ctypes.byref(a), ctypes.byref(Desc(1024, 1024, 0, 0x91, 4, 0))), flush=True)
sys.stdin.readline()
'''


POOL = r'''
import ctypes, sys, torch
rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps") if "libcudart" in l][0]) if torch.zeros(1, device="cuda").is_cuda else None
pool, p, props = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_ubyte * 88)()
ctypes.memmove(props, (ctypes.c_int * 4)(1, 1, 1, 0), 16)
print([rt.cudaMemPoolCreate(ctypes.byref(pool), props), rt.cudaMallocFromPoolAsync(ctypes.byref(p), ctypes.c_size_t(64 << 20), pool, None), rt.cudaDeviceSynchronize()], flush=True)
sys.stdin.readline()
'''


def goes(t, what, code):
    try:
        c = t.Container("goes-" + "".join(x for x in what if x.isalnum()), memory=8 * GIB, extra=("swap on",))
        p = c.start("python3", "-c", code, stdin=subprocess.PIPE)
        said = p.stdout.readline().strip()
        before, out, back = c.ask("stats"), c.ask("out"), c.ask("in")
        p.communicate("\n", timeout=60)
        t.row(f"{what}: goes, known ahead", f"{said}; ahead: {before.get('immovable')!r}; {json.dumps(out)}; {json.dumps(back)}",
              out.get("ok") and back.get("ok") and not before.get("immovable"))
    except Exception as e:
        t.row(what, f"{type(e).__name__}: {e}", False)


def refused(t, what, code):
    try:
        c = t.Container("refused-" + "".join(x for x in what if x.isalnum()), memory=8 * GIB, extra=("swap on",))
        p = c.start("python3", "-c", code, stdin=subprocess.PIPE)
        said = p.stdout.readline().strip()
        before, answer = c.ask("stats"), c.ask("out")
        p.communicate("\n", timeout=60)
        t.row(f"{what}: refused with the reason, known ahead", f"{said}; ahead: {before.get('immovable')!r}; {json.dumps(answer)}",
              not answer.get("ok") and answer.get("reason") == before.get("immovable") != "")
    except Exception as e:
        t.row(what, f"{type(e).__name__}: {e}", False)


def run(t):
    work = {"ranks": [lambda: same(t, "ranks", "rank", "torchrun, two ranks on the card")], "loader": [lambda: same(t, "loader", "loader", "PyTorch with four DataLoader workers")],
            "given": [lambda: given(t, "given", "tensors given to another process")], "segments": [lambda: given(t, "segments", "the same with expandable segments")],
            "shared": [lambda: shared(t)], "goes": [lambda: goes(t, "a graph with a memory node", GRAPH)],
            "refused": [lambda: refused(t, "arrays of compressed blocks", ARRAY), lambda: refused(t, "a pool that can be exported", POOL)]}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda f: f(), [f for part in t.parts(work) for f in work[part]]))
