"""The section space of test/gpu/run: containers of one card at once, under MPS and the library.

Each part stands alone: what fails in one is a failed row, and the next one begins with a daemon of its own.
"""
import concurrent.futures, ctypes, json, os, shutil, subprocess, time

GIB = 1 << 30


class Daemon:
    """The card's daemon, as the agent starts it: one for the card, for the users of all containers."""

    def __init__(self, t):
        self.t, self.dir = t, os.path.join(t.WORK, "mps")
        os.makedirs(self.dir, exist_ok=True)
        self.env = dict(os.environ, CUDA_VISIBLE_DEVICES=t.uuid(), CUDA_MPS_PIPE_DIRECTORY=self.dir, CUDA_MPS_LOG_DIRECTORY=self.dir)

    def start(self, *more):
        return self.t.sh(["nvidia-cuda-mps-control", "-d", *more], env=self.env)

    def ask(self, what):
        p = self.t.sh(["nvidia-cuda-mps-control"], input=what + "\n", env=self.env, timeout=20)
        return (p.stdout + p.stderr).strip()

    def log(self, lines=12):
        text = ""
        for name in ("control.log", "server.log"):
            try:
                with open(os.path.join(self.dir, name)) as f:
                    text += name + ": " + " / ".join(l.strip() for l in f.readlines()[-lines:]) + "\n"
            except OSError:
                pass
        return text

    def __enter__(self):
        p = self.start("-multiuser-server")
        if p.returncode:
            self.t.note("the daemon refuses -multiuser-server", (p.stdout + p.stderr).strip()[-200:])
            p = self.start()
        if p.returncode:
            raise RuntimeError("no MPS daemon: " + (p.stdout + p.stderr)[-300:])
        return self

    def __exit__(self, *_):
        try:
            self.ask("quit -t 5")
        except subprocess.TimeoutExpired:
            pass
        for _ in range(100):
            if not self.t.sh(["pgrep", "-x", "nvidia-cuda-mps"]).stdout.strip():  # as much of its name as the kernel has
                break
            time.sleep(0.1)


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def nvml(t, name):
    """MiB by pid, as one of NVML's lists has them."""
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    lib.nvmlInit_v2()
    dev, count, all = ctypes.c_void_p(), ctypes.c_uint(128), (Process * 128)()
    lib.nvmlDeviceGetHandleByUUID(t.uuid().encode(), ctypes.byref(dev))
    r = getattr(lib, name)(dev, ctypes.byref(count), all)
    return {p.pid: p.used >> 20 if p.used < 1 << 60 else None for p in all[:count.value]} if r == 0 else {"error": r}


def used(t, pid):
    for name in ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v3"):
        found = nvml(t, name)
        if found.get(pid) is not None:
            return found[pid]
    return -1


def begin(t, name, *argv, **limits):
    """A program in a container of its own that runs at once with others."""
    c = t.Container(f"{name}-{time.time_ns()}", sharing="space", **limits)
    return c, c.start(*argv)


def together(t, seconds):
    """Two decodes at once, against the same two taking turns."""
    for kind, what, bar in (("llm", "a token of a model of 1.2 billion weights", True), ("decode", "graphs that fill the card", False)):
        if not bar and os.environ.get("BRIEF"):
            continue
        alone = t.Steps(kind, 2).add(kind).run()[0]
        got = {}
        for how, more in (("turns", {}), ("turns with low latency", {"latency": "low"}), ("space", {"sharing": "space"})):
            pair = t.Steps(f"{kind}-{how.replace(' ', '-')}", seconds)
            got[how] = pair.add(kind, compute=50, lend="off", **more).add(kind, compute=50, lend="off", **more).run()
        rate = {how: sum(r["rate"] for r in pair) for how, pair in got.items()}
        words = "; ".join(f"{how}: {rate[how]:.0f} a second, {t.show(got[how][0])}" for how in got)
        say = t.row if bar else lambda b, m, _: t.note(b, m)
        say(f"two decodes of 50 % at once, {what}, against turns", f"{rate['space'] / rate['turns']:.2f} times ({rate['space'] / alone['rate']:.2f} times one alone, "
            f"{alone['rate']:.0f} a second); {words}", rate["space"] >= 1.3 * rate["turns"])
    a, b = t.Steps("both", seconds).add("llm", compute=100, lend="off", sharing="space").add("llm", compute=100, lend="off", sharing="space").run()
    t.note("the same tokens, 100 % each, at once", f"{a['rate'] + b['rate']:.0f} a second, {t.show(a)}")
    if os.environ.get("BRIEF"):
        return
    a, b = t.Steps("hog", seconds).add("decode", 10, compute=50, lend="off", sharing="space").add("gemm", compute=50, lend="off", sharing="space").run()
    t.note("decode with pauses of 10 ms at 50 % beside products of 8192^3 at 50 %, at once", f"{t.show(a)}; products {b['rate']:.0f} a second")


def percentages(t):
    """What a percentage gives, under the library."""
    for kind in t.KINDS:
        t.solo(kind)

        def rate(name, percent, seconds):
            return begin(t, name, f"{t.BIN}/load", kind, seconds, compute=percent)[1]

        def result(p):
            out, err = p.communicate(timeout=60)
            return f"{100 * float(out) / t.solo(kind):.1f}" if out else "none: " + err.strip().rsplit(": ", 1)[-1][-60:]
        alone = [result(rate(f"p{cap}", cap, 1.2)) for cap in (10, 30, 50, 70)]
        both = [result(p) for p in [rate("p30", 30, 3), rate("p70", 70, 3)]]
        t.note(f"in space, {kind}: percent of solo at 10, 30, 50, 70 % alone", f"{', '.join(alone)}; 30 and 70 side by side: {' and '.join(both)}")
    # What a program writes into its environment does not help it.
    c = t.Container("greedy", sharing="space", compute=30)
    p = c.start("env", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PIPE_DIRECTORY=/nowhere", f"{t.BIN}/load", "small", 2)
    out, err = p.communicate(timeout=60)
    got = float(out or 0) / t.solo("small")
    t.row("in space, a program that asks for 100 % in its environment has its 30 %", f"{100 * got:.1f} % of solo {err[-200:]}", 0.2 < got < 0.4)


def counted(t):
    """Use and memory are counted, and held."""
    c, p = begin(t, "use", f"{t.BIN}/load", "small", 8, memory=4 * GIB, compute=50)
    time.sleep(3)
    before, at = c.ask("stats"), time.time()
    time.sleep(2)
    after, seconds = c.ask("stats"), time.time() - at
    share = (after["devices"][0]["busy_ns"] - before["devices"][0]["busy_ns"]) / 1e9 / seconds
    t.row("in space, use of a container of 50 % that is always busy", f"{share:.3f} of the card's time", abs(share - 0.5) < 0.025)
    t.note("NVML, a client of MPS", f"pid {p.pid}: clients {nvml(t, 'nvmlDeviceGetMPSComputeRunningProcesses_v3')}, all {nvml(t, 'nvmlDeviceGetComputeRunningProcesses_v3')}; "
           f"the library says {json.dumps(after['devices'][0])}")
    t.note("nvidia-smi, a client of MPS", t.sh("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv,noheader").stdout.strip().replace("\n", "; "))
    p.communicate(timeout=60)
    c = t.Container("memory-limit", sharing="space", memory=4 * GIB, compute=50)
    p = c.start(f"{t.BIN}/memory", 64, "no-managed", stdin=subprocess.PIPE, bufsize=1)
    p.stdout.readline()
    p.stdin.write("\n")
    p.stdin.flush()
    f = p.stdout.readline().split()
    time.sleep(0.5)
    mib = used(t, p.pid)
    t.row("in space, memory limit 4096 MiB", f"{' '.join(f)}; the driver says the process uses {mib} MiB", len(f) > 4 and int(f[2]) > 3000 and mib <= 4096)
    t.stop(p)


def users(t):
    """Two users at once: a container runs as any."""
    ps = []
    os.chmod(t.WORK, 0o755)
    library = shutil.copy(t.LIBRARY, t.WORK)
    for uid in ("0", "1234"):
        c = t.Container(f"user-{uid}", sharing="space", compute=40, library=library)
        os.chmod(os.path.join(c.dir, "run"), 0o777)
        os.chmod(os.path.join(c.dir, "requests", t.uuid()), 0o666)
        ps.append(c.start("setpriv", f"--reuid={uid}", "--clear-groups", f"{t.BIN}/load", "small", 3))
    got = []
    for p in ps:
        try:
            out, err = p.communicate(timeout=25)
            got.append(out.strip() or err.strip()[-200:])
        except subprocess.TimeoutExpired:
            t.stop(p)
            got.append("did not end in 25 s")
    t.row("in space, containers of two users at once", " / ".join(got), all(g.replace(".", "").isdigit() for g in got))


def swaps(t):
    """Memory moves while another container works on the card at the same time."""
    other = t.Steps("beside", 12).add("llm", compute=50, lend="off", sharing="space")
    c = t.Container("moved", sharing="space", memory=20 * GIB, compute=50, extra=("swap on",))
    ready = os.path.join(c.dir, "ready")
    p = c.start(f"{t.BIN}/swap", 16, "stdin", ready, "malloc", stdin=subprocess.PIPE)
    t.wait_for(ready, p=p)
    t.wait_for(other.all[0][1], 60)
    before, prepared = used(t, p.pid), c.ask("prepare", 17 * GIB)
    open(other.go, "w").close()
    time.sleep(1.5)
    out, gone, back = {}, -1, {}
    for _ in range(3):
        out = c.ask("out")
        gone = used(t, p.pid)
        back = c.ask("in")
        if not (out.get("ok") and back.get("ok")):
            break
        time.sleep(0.3)
    text, err = p.communicate("\n", timeout=60)
    t.row("in space, swap of 16 GiB out and in, three times", f"prepared {prepared}, out {out}, in {back}; {before} MiB before, {gone} while out; {text.strip() or err[-300:]}",
          out.get("ok") and back.get("ok") and "wrong 0" in text and gone < before - 15000)
    r, = (json.loads(q.communicate(timeout=60)[0] or "{}") for q, _ in other.all)
    t.note("in space, tokens beside it meanwhile", f"{t.show(r)}; in each second {r['each']}" if r else "none")


def framework(t):
    """PyTorch and JAX in space, moved ten times: the same result as with the same share and not moved."""
    def one(name):
        kind, more = t.FRAMEWORKS[name]
        env = dict(os.environ, **more)

        def go(which):
            ready = os.path.join(t.WORK, f"space-{name}-{which}.ready".replace(" ", "-"))
            c = t.Container(f"f-space-{which}-" + "".join(x for x in name if x.isalnum()), sharing="space", memory=12 * GIB, compute=45, extra=("swap on",))
            p = c.start("python3", f"{t.HERE}/frameworks.py", kind, ready, stdin=subprocess.PIPE, env=env)
            t.wait_for(ready, 90, p)
            return c, p
        try:
            _, plain = go("still")  # libraries choose their kernels by the processors they see, so the share is the same
            c, p = go("moved")
            answers = []
            for _ in range(10):
                answers += [c.ask("out"), c.ask("in")]
                if not all(a.get("ok") for a in answers):
                    break
            got, want = p.communicate("\n", timeout=90), plain.communicate("\n", timeout=90)
            bad = [a for a in answers if not a.get("ok")]
            t.row(f"in space, {name}: swapped {len(answers) // 2} times", f"{want[0].strip() or want[1][-300:]} not moved, {got[0].strip() or got[1][-300:]} moved {bad or ''}; "
                  f"{max(a.get('bytes', 0) for a in answers) >> 20} MiB", not bad and "hash" in want[0] and got[0] == want[0])
        except Exception as e:
            t.row(f"in space, {name}: swapped", f"{type(e).__name__}: {e}", False)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, ("PyTorch", "JAX")))


def faults(t, d):
    """What one client's end does to another."""
    def victim(name):
        c, p = begin(t, name, f"{t.BIN}/load", "small", 7, os.path.join(t.WORK, name + ".ready"), compute=40)
        t.wait_for(os.path.join(t.WORK, name + ".ready"), 60)
        return p
    p = victim("killed-beside")
    _, q = begin(t, "killed", f"{t.BIN}/load", "small", 30, os.path.join(t.WORK, "killed.ready"), compute=40)
    t.wait_for(os.path.join(t.WORK, "killed.ready"), 60)
    time.sleep(0.5)
    t.stop(q)
    out, err = p.communicate(timeout=40)
    t.row("in space, a container killed while its kernels run: the one beside it goes on", f"{out.strip() or err[-200:]}", bool(out))
    p = victim("fault-beside")
    _, q = begin(t, "fault", f"{t.BIN}/load", "fault", 1, compute=40)
    fault = q.communicate(timeout=40)
    status = d.ask("get_server_list")
    _, n = begin(t, "fault-new", f"{t.BIN}/load", "small", 1, compute=40)
    new = n.communicate(timeout=60)
    out, err = p.communicate(timeout=60)
    t.note("in space, a kernel writes where it has no memory: its own process", (fault[0].strip() or fault[1][-200:]))
    t.note("in space, and the container beside it", f"exit {p.returncode}: {out.strip() or err.strip()[-200:]}")
    t.note("in space, and a container that starts right after", f"exit {n.returncode}: {new[0].strip() or new[1].strip()[-200:]}; servers {status!r}")
    begun = time.time()
    for _ in range(10):
        _, n = begin(t, f"fault-later-{_}", f"{t.BIN}/load", "small", 1, compute=40)
        new = n.communicate(timeout=60)
        if n.returncode == 0:
            break
        time.sleep(0.5)
    t.row("in space, after a fault and when its clients have gone a container runs", f"after {time.time() - begun:.1f} s: {new[0].strip() or new[1][-200:]}; servers {d.ask('get_server_list')!r}", n.returncode == 0)
    print("  " + d.log().replace("\n", "\n  "), flush=True)


def daemon_gone(t):
    c = t.Container("no-daemon", sharing="space", compute=40)
    p = c.start(f"{t.BIN}/load", "small", 1)
    out, err = p.communicate(timeout=60)
    t.row("in space, without the daemon launches are refused with the reason", err.strip()[-260:] or out, p.returncode != 0 and "MPS" in err)


def run(t):
    seconds, budget = float(os.environ.get("SECONDS", "3")), time.time() + float(os.environ.get("BUDGET", "1e9"))
    if not os.environ.get("BRIEF"):
        t.calibrate()
    all_parts = {"together": lambda d: together(t, seconds), "swaps": lambda d: swaps(t), "counted": lambda d: counted(t), "faults": lambda d: faults(t, d),
             "users": lambda d: users(t), "percentages": lambda d: percentages(t), "framework": lambda d: framework(t)}
    wanted = t.parts(all_parts)
    for name, part in all_parts.items():
        begun = time.time()
        if name not in wanted:
            continue
        if begun > budget:
            t.note(f"space, {name}", "left out: the time is over")
            continue
        try:
            with Daemon(t) as d:
                try:
                    part(d)
                except Exception:
                    print("  " + d.log().replace("\n", "\n  "), flush=True)
                    raise
        except Exception as e:
            t.row(f"space, {name}", f"{type(e).__name__}: {e}", False)
        t.forget_shares()
        print(f"   {name}: {time.time() - begun:.0f} s", flush=True)
    try:
        daemon_gone(t)
    except Exception as e:
        t.row("space, without the daemon", f"{type(e).__name__}: {e}", False)
