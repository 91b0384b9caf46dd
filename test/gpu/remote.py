"""The section remote of test/gpu/run: a card from afar, over sockets of this machine, through a network that takes time, and through two agents."""
import concurrent.futures, math, os, subprocess, tempfile, time

UNIX, TCP, SLOW, CLIENT = "unix:/tmp/elastic-remote.sock", "tcp:127.0.0.1:7800", "tcp:127.0.0.1:7801", "unix:/tmp/elastic-remote-client.sock"


class Remote:
    """A server of the card, under the library if it is in a container, what is between, and programs that use it from elsewhere."""

    def __init__(self, t, address, container=None, delay=0, agents=None, client=None):
        self.t = t
        self.client = client or t.REMOTE
        self.etc = tempfile.mkdtemp(dir=t.WORK)
        self.all = []
        try:
            self.start(address, container, delay, agents)
        except BaseException:
            self.__exit__()
            raise

    def start(self, address, container, delay, agents):
        t = self.t
        argv = [f"{t.REMOTE}/elastic-gpu-remote", address]
        self.begin(container.start(*argv) if container else subprocess.Popen(argv))
        if delay:
            self.begin(subprocess.Popen([f"{t.REMOTE}/delay", SLOW, address, str(delay)]))
            address = SLOW
        if agents:
            between = ",".join(a.removeprefix("unix:") for a in (CLIENT, address))
            self.begin(subprocess.Popen([agents, "-test.run", "^TestBetweenSockets$", "-test.timeout", "0"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        env=dict(os.environ, ELASTIC_BETWEEN=between)))
            address = CLIENT
            t.wait_for(address.removeprefix("unix:"))
        with open(os.path.join(self.etc, "remote"), "w") as f:
            f.write(address + "\n")
        time.sleep(1)

    def begin(self, p):
        self.t.started.append(p)
        self.all.insert(0, p)

    def bench(self, *argv, timeout=120):
        inner = f"mount --bind {self.etc} /etc/elastic-gpu && LD_LIBRARY_PATH={self.client} exec \"$@\""
        return figures(["unshare", "-m", "--propagation", "private", "sh", "-c", inner, "sh", f"{self.t.REMOTE}/bench", *map(str, argv)], timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.all:
            p.terminate()
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                self.t.stop(p)
        for path in (UNIX, CLIENT):
            if os.path.exists(path.removeprefix("unix:")):
                os.remove(path.removeprefix("unix:"))


def figures(argv, timeout=120):
    """What a program measured, by name."""
    p = subprocess.run(argv, text=True, capture_output=True, timeout=timeout)
    if p.returncode:
        print(f"  exit {p.returncode}: {p.stdout[-500:]}{p.stderr[-500:]}", flush=True)
    return {w[1]: float(w[2]) for w in (line.split() for line in p.stdout.splitlines()) if w and w[0] == "figure"}


def show_calls(t, name, pairs, most_us, delay=0):
    """Launches, a call that waits, and copies, from pairs of native and from afar."""
    of = lambda key, side: t.median([p[side].get(key, math.nan) for p in pairs])
    launches = [p[1].get("launches_per_second", 0) / p[0].get("launches_per_second", 1) for p in pairs]
    more = of("synchronize_p50", 1) - of("synchronize_p50", 0) - 2 * delay
    t.note(f"native beside {name}", f"{of('launches_per_second', 0):.0f} launches a second, {of('synchronize_p50', 0):.2f} us, {of('copy_to_card', 0):.1f} and {of('copy_from_card', 0):.1f} GB/s")
    t.row(f"remote, {name}: launches a second of native", f"{100 * t.median(launches):.1f} % ({100 * min(launches):.0f} to {100 * max(launches):.0f})", t.median(launches) >= .9)
    t.row(f"remote, {name}: a call that waits, above native and the network", f"{more:.1f} us (p99 of all {of('synchronize_p99', 1):.1f})", more <= most_us)
    t.row(f"remote, {name}: copies", f"{of('copy_to_card', 1):.1f} and {of('copy_from_card', 1):.1f} GB/s", min(of("copy_to_card", 1), of("copy_from_card", 1)) >= 8)


def show_training(t, name, pairs, bar=.9):
    for key, what in (("products_per_second", "matrix products a second"), ("steps_per_second", "steps of a training loop a second")):
        parts = [p[1].get(key, 0) / p[0].get(key, 1) for p in pairs]
        measured = f"{100 * t.median(parts):.1f} % ({100 * min(parts):.0f} to {100 * max(parts):.0f}) of {t.median([p[0].get(key, 0) for p in pairs]):.0f}"
        if bar:
            t.row(f"remote, {name}: {what}, of native", measured, t.median(parts) >= bar)
        else:
            t.note(f"remote, {name}: {what}, of native", measured)


def pairs_of_calls():
    return int(os.environ.get("PAIRS", "5"))


def calls(t):
    for name, address, delay in (("Unix", UNIX, 0), ("TCP", TCP, 0), ("TCP and 20 us each way", TCP, 20), ("TCP and 50 us each way", TCP, 50), ("TCP and 200 us each way", TCP, 200)):
        with t.bar(f"remote, {name}"), Remote(t, address, delay=delay) as r:
            pairs = [(figures([f"{t.REMOTE}/bench", "4"]), r.bench(4)) for _ in range(pairs_of_calls())]
            show_calls(t, name, pairs, 3 if name == "Unix" else 40, delay)


def training(t):
    for name, address in (("Unix", UNIX), ("TCP", TCP)):
        with t.bar(f"remote, {name}: training"), Remote(t, address) as r:
            pairs = [(figures([f"{t.REMOTE}/bench", "train", "2"]), r.bench("train", 2)) for _ in range(3)]
            show_training(t, name, pairs)


def client_of(t, connections):
    """The folder of a client that copies over so many connections."""
    folder, native = f"{t.REMOTE}/connections-{connections}", os.path.dirname(t.REMOTE)
    made = t.sh(["make", "-C", native, f"B={folder}", f"CFLAGS=-O2 -g -DCONNECTIONS={connections}", f"{folder}/libcuda.so.1"])
    if made.returncode:
        raise RuntimeError(made.stderr[-300:])
    return folder


def agents(t):
    """Two agents between, which are the tests of internal/agent/remotegpu as a program; several builds of it, and clients with several
    numbers of connections, are measured in turn."""
    programs = [os.path.abspath(p) for p in os.environ.get("AGENTS", "").split(",") if p]
    if not programs:
        t.note("remote, two agents", "not measured: AGENTS names no tests of internal/agent/remotegpu")
        return
    clients = {n: client_of(t, n) for n in os.environ.get("CLIENTS", "").split()} or {"": None}
    found = {(p, n): ([], []) for p in programs for n in clients}
    for _ in range(min(3, pairs_of_calls())):
        for p, n in found:
            with t.bar(f"remote, two agents ({os.path.basename(p)} {n})"), Remote(t, UNIX, agents=p, client=clients[n]) as r:
                for pairs, argv in zip(found[p, n], (("4",), ("train", "2"))):
                    pairs.append((figures([f"{t.REMOTE}/bench", *argv]), r.bench(*argv)))
    for (p, n), (plain, train) in found.items():
        name = "two agents" + (f" ({os.path.basename(p)}{f', {n} connections' if n else ''})" if len(found) > 1 else "")
        with t.bar(f"remote, {name}"):
            show_calls(t, name, plain, 40)
            show_training(t, name, train, None)


def share(t):
    alone = figures([f"{t.REMOTE}/bench", "work", "4"]).get("kernels_per_second", 1)
    near = t.Container("near", compute=70)
    with Remote(t, UNIX, t.Container("afar", compute=30)) as afar, concurrent.futures.ThreadPoolExecutor() as pool:
        here = pool.submit(figures, near.command([f"{t.REMOTE}/bench", "work", 8]))
        there = pool.submit(afar.bench, "work", 8)
        here, there = (x.result().get("kernels_per_second", 0) / alone for x in (here, there))
    t.row("remote, 30 % of a card from afar beside 70 % here", f"{100 * there:.1f} % and {100 * here:.1f} % of alone", t.close(there, .3, .05) and t.close(here, .7, .05))


def swap(t):
    """The server is moved off the card while its program trains, for longer than a session may be without a connection."""
    c = t.Container("moves", extra=("swap on",))
    with Remote(t, UNIX, c) as afar, concurrent.futures.ThreadPoolExecutor() as pool:
        trains = pool.submit(afar.bench, "train", 30, 4096, timeout=300)
        t.wait_for(os.path.join(c.dir, "run", "control"))
        time.sleep(10)
        used = lambda: int(t.sh("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits").stdout.split()[0])
        before, out, left = used(), c.ask("out"), used()
        waits = trains.running()
        time.sleep(40)
        waits, back = waits and trains.running(), c.ask("in")
        steps = trains.result().get("steps_per_second", 0)
    moved = f"{out.get('bytes', 0) >> 20} MiB out in {out.get('total_s')} s, in {back.get('total_s')} s; {before} MiB of the card in use, {left} without it; {steps:.0f} steps a second in all"
    t.row("remote, 40 s off the card, and on", out.get("ok") and moved or str(out), out.get("ok") and back.get("ok") and waits and left < before - 4000 and steps > 0)


def run(t):
    """The machine's noise moves what is from afar and what is not, so they are measured in turn; figures are medians."""
    all_parts = {"calls": calls, "training": training, "agents": agents, "share": share, "swap": swap}
    for part in t.parts(all_parts):
        with t.bar(f"remote, {part}"):
            all_parts[part](t)
