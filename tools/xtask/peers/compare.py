"""EStream beside llama.cpp on the same file and ids, alternately in one run; prints the ratio table as markdown.

1. Search: llama.cpp's settings (repacked weights, flash attention, ubatch, threads) at a few prompt lengths; the fastest is the
   denominator, and the leanest within 10 % of it is the one whose memory is compared too.
2. Warm rows: processes of both take turns; the figure of a program is the median over its turns, the spread is printed.
3. Cold rows: page cache dropped before each process; the time runs from before the process exists to its end.
4. Memory: the larger of VmHWM and the drop of MemAvailable; and llama.cpp inside a memory cgroup of 1.25 times EStream's peak.

Nothing is estimated: what could not be measured is printed as such.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Seconds after which a process has not ended; a confined one may page for hours.
PATIENCE = 1800
CONFINED_PATIENCE = 300
# Tokens that warm a process of the peer before its first run that counts.
WARM = 128


def available():
    with open("/proc/meminfo") as meminfo:
        for line in meminfo:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no MemAvailable in /proc/meminfo")


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as switch:
        switch.write("3")


def watch(arguments, cgroup=None, patience=PATIENCE):
    """Runs a process to its end: (JSON of its last line, seconds, drop of MemAvailable) or (None, reason, None)."""
    before = least = available()

    def enter():
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    begin = time.monotonic()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=enter)
    while process.poll() is None:
        least = min(least, available())
        time.sleep(0.005)
        if time.monotonic() - begin > patience:
            process.kill()
            process.communicate()
            return None, f"not ended after {patience} s", None
    seconds = time.monotonic() - begin
    text, errors = process.stdout.read(), process.stderr.read()
    if process.returncode != 0:
        reason = "killed" if process.returncode == -9 else f"exit {process.returncode}: {errors.strip()[-200:]}"
        return None, reason, None
    return json.loads(text.strip().splitlines()[-1]), seconds, before - least


class Peer:
    def __init__(self, options):
        self.gguf = options.gguf

    def run(self, setting, prompts, runs, warm, cgroup=None, patience=PATIENCE):
        request = dict(setting, gguf=self.gguf, prompts=prompts, runs=runs, warm=warm)
        return watch([sys.executable, str(HERE / "llama_cpp_worker.py"), json.dumps(request)], cgroup, patience)


class Ours:
    def __init__(self, options):
        self.program, self.pack, self.flags = options.estream, options.pack, options.flags.split()

    def bench(self, prompts, runs, extra=()):
        sizes = ",".join(map(str, prompts))
        command = [self.program, "--json", "bench", self.pack, "--prompts", sizes, "--runs", str(runs), "--cold-runs", "0"]
        return watch(command + self.flags + list(extra))

    def once(self, ids):
        command = [self.program, "--json", "run", self.pack, "--tokens", ",".join(map(str, ids))]
        return watch(command + self.flags)


def name(setting):
    repack = "repack" if setting["repack"] else "no repack"
    flash = {0: "no flash", 1: "flash"}[setting["flash"]]
    return f"{repack}, {flash}, ubatch {setting['ubatch']}, {setting['threads']} threads, load {setting['load']}"


def search(peer, threads, prompts, quick):
    results = []
    grid = itertools.product([True, False], [0, 1], [512, 1024], sorted({1, threads}, reverse=True))
    for repack, flash, ubatch, count in grid:
        if count != threads and (flash or ubatch != 512):
            continue
        # What is best on most machines, and one step from it in each direction.
        if quick and (not repack) + (not flash) + (ubatch != 512) + (count != threads) > 1:
            continue
        setting = dict(repack=repack, flash=flash, ubatch=ubatch, threads=count, load="mmap")
        answer, seconds, drop = peer.run(setting, prompts, 1, WARM)
        if answer is None:
            print(f"- {name(setting)}: {seconds}")
            continue
        speeds = [row["tokens"] / min(row["seconds"]) for row in answer["rows"]]
        peak = max(answer["peak_bytes"], drop)
        results.append((statistics.mean(speeds), peak, setting))
        print(f"- {name(setting)}: " + ", ".join(f"pp{t} {s:.1f} tokens/s" for t, s in zip(prompts, speeds)) + f", peak {peak / 2**20:.0f} MiB")
    best = max(results, key=lambda result: result[0])
    lean = min((result for result in results if result[0] >= 0.9 * best[0]), key=lambda result: result[1])
    print(f"\nfastest: {name(best[2])}; leanest within 10 %: {name(lean[2])}\n")
    return best, lean


def warm(peer, ours, setting, prompts, turns, variants):
    print("| test | llama.cpp tokens/s | " + " | ".join(f"{label} tokens/s | ratio" for label, _ in variants) + " |")
    print("|---|---|" + "---|---|" * len(variants))
    for count in prompts:
        theirs, mine = [], [[] for _ in variants]
        runs = 2 if count <= 512 else 1
        for _ in range(turns):
            answer, reason, _ = peer.run(setting, [count], runs, WARM)
            theirs.append(count / min(answer["rows"][0]["seconds"]) if answer else float("nan"))
            for values, (_, extra) in zip(mine, variants):
                answer, reason, _ = ours.bench([count], runs, extra)
                if answer is None:
                    raise SystemExit(f"estream bench: {reason}")
                values.append(answer["rows"][0]["warm"]["tokens_per_second"])
        base = statistics.median(theirs)
        cells = [f"pp{count}", f"{base:.1f} ({min(theirs):.1f}–{max(theirs):.1f})"]
        for values in mine:
            middle = statistics.median(values)
            cells += [f"{middle:.1f} ({min(values):.1f}–{max(values):.1f})", f"{middle / base:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    print()


def cold(peer, ours, setting, count, turns, vocab):
    sys.path.insert(0, str(HERE))
    ids = [((i * 0x9E3779B9 & 0xFFFFFFFF) * vocab) >> 32 for i in range(1, count + 1)]
    times = {"llama.cpp, mmap": [], "llama.cpp, direct": [], "llama.cpp, read": [], "estream": []}
    peaks = {key: [] for key in times}
    for _ in range(turns):
        for label, load in [("llama.cpp, mmap", "mmap"), ("llama.cpp, direct", "direct"), ("llama.cpp, read", "none")]:
            for repack in [True, False]:
                drop_caches()
                answer, seconds, drop = peer.run(dict(setting, load=load, repack=repack), [count], 1, 0)
                if answer:
                    times[label].append(seconds)
                    peaks[label].append(max(answer["peak_bytes"], drop))
        drop_caches()
        answer, seconds, drop = ours.once(ids)
        if answer is None:
            raise SystemExit(f"estream run: {seconds}")
        times["estream"].append(seconds)
        peaks["estream"].append(max(answer["memory"]["measured_peak_bytes"], drop))
    best = min(min(values) for label, values in times.items() if label != "estream" and values)
    mine = statistics.median(times["estream"])
    print(f"| cold first token, {count} tokens, process start included | seconds | peak MiB |\n|---|---|---|")
    for label, values in times.items():
        if values:
            print(f"| {label} | {min(values):.2f}–{max(values):.2f} | {max(peaks[label]) / 2**20:.0f} |")
    print(f"\ncold ratio (median estream / best llama.cpp): {mine / best:.3f}\n", flush=True)
    return max(peaks["estream"])


def confined(peer, setting, count, limit):
    """llama.cpp in a memory cgroup (version 1 or 2) of `limit` bytes."""
    roots = [(pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (pathlib.Path("/sys/fs/cgroup"), "memory.max")]
    for root, knob in roots:
        group = root / "estream-peers"
        try:
            group.mkdir(exist_ok=True)
            (group / knob).write_text(str(limit))
        except OSError:
            continue
        for load, repack in [("mmap", False), ("mmap", True), ("direct", False)]:
            drop_caches()
            answer, seconds, _ = peer.run(dict(setting, load=load, repack=repack), [count], 1, 0, group, CONFINED_PATIENCE)
            outcome = f"{count / answer['rows'][0]['seconds'][0]:.2f} tokens/s, {seconds:.1f} s in all" if answer else seconds
            print(f"- llama.cpp in {limit / 2**20:.0f} MiB (load {load}, {'repack' if repack else 'no repack'}): {outcome}", flush=True)
        group.rmdir()
        return
    print("- no memory cgroup can be made here: not measured")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estream", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--pack", required=True)
    parser.add_argument("--flags", default="", help="flags for estream, in one string")
    parser.add_argument("--prompts", default="32,128,256,512,1024,2048,4096")
    parser.add_argument("--search", default="512,1024", help="prompt lengths at which the peer's settings are searched")
    parser.add_argument("--quick", action="store_true", help="search fewer of the peer's settings")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vocab", type=int, required=True)
    options = parser.parse_args()
    peer, ours = Peer(options), Ours(options)
    print(f"llama.cpp settings, {options.gguf}:\n")
    lengths = lambda text: [int(count) for count in text.split(",")]
    best, lean = search(peer, options.threads, lengths(options.search), options.quick)
    prompts = lengths(options.prompts)
    variants = [("streamed", []), ("resident", ["--schedule", "resident"]), ("resident, int8", ["--schedule", "resident", "--activations", "int8"])]
    warm(peer, ours, best[2], prompts, options.turns, variants)
    peak = cold(peer, ours, best[2], 512, options.turns, options.vocab)
    print(f"peak memory: llama.cpp fastest {best[1] / 2**20:.0f} MiB, leanest {lean[1] / 2**20:.0f} MiB, estream {peak / 2**20:.0f} MiB; ratios {peak / best[1]:.3f}, {peak / lean[1]:.3f}\n")
    confined(peer, best[2], 512, int(1.25 * peak))


main()
