#!/usr/bin/env python3
"""Places and routes single blocks with nextpnr for an Artix-7 and says at which clock each would run there.

Each block is mapped with Yosys and routed alone, between registers of a harness that needs three pins. The figures are
those of the routed design on that device and never those of UltraScale+. What they mean: docs/synthesis.md.

It needs the Python module `pyosys` and nextpnr-himbaechel-xilinx: `make route` sees to both. The program is the one that
the variable NEXTPNR names, or else that on PATH, or else that in the Debian root which ci/setup_route.sh makes.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from synth import Failure, Row, Yosys, name_of, plain, problems, read_netlist, without_zeros

# The fastest of the family. nextpnr 0.11 takes the speed grade and does not look at it, see docs/synthesis.md.
DEVICE = "xc7a200tfbg484-3"
PROGRAM = "nextpnr-himbaechel-xilinx"
WHAT = "routed, Artix-7, by nextpnr's delays, which know no speed grade; never an UltraScale+ figure"
# The card's clock on UltraScale+, for comparison only.
WANTED_MHZ = 250
# Where the Debian root is, made by ci/setup_route.sh.
ROOT = "build/route/sid"
# Pins of that package: the first can drive a clock.
PINS = {"clk": "R4", "feed": "T14", "fold": "T15"}
# Inputs of a LUT, and so how many bits one step of the harness' fold takes.
FOLD = 6
TOP, INSTANCE = "routed", "block"


def ports_of(source, path):
    """Returns the name of the outermost module, and its ports as (direction, name, width)."""
    match = re.search(r"^module (\w+) ?\((.*?)^endmodule", source, re.MULTILINE | re.DOTALL)
    if match is None:
        raise Failure(f"there is no outermost module in {path}")
    ports = re.findall(r"^ +(input|output) (?:wire|reg) +(?:\[(\d+):0\] +)?([\w$]+);", match[2], re.MULTILINE)
    ports = [(way, name, int(high or 0) + 1) for way, high, name in ports]
    if ("input", "clock", 1) not in ports or not any(way == "output" for way, _, _ in ports):
        raise Failure(f"module {match[1]} in {path} has no input `clock` or no output")
    return match[1], ports


def harness(module, ports):
    """Returns Verilog that puts the block between registers and needs three pins.

    A shift register feeds a register in front of the inputs; behind the outputs stands a register, which is folded into
    one bit by XOR, a LUT and a flop at a time. So every path of the block begins and ends in a flop beside it.
    """
    wires, sizes = [".clock(clk)"], {"input": 0, "output": 0}
    for way, name, width in ports:
        if name == "clock":
            continue
        low = sizes[way]
        sizes[way] += width
        wires.append(f".{name}({'given' if way == 'input' else 'result'}[{low + width - 1}:{low}])")
    inputs, outputs = sizes["input"], sizes["output"]
    lines = [
        f"module {TOP}(input wire clk, input wire feed, output wire fold);",
        f"  reg [{inputs - 1}:0] shift, given;",
        f"  wire [{outputs - 1}:0] result;",
        f"  reg [{outputs - 1}:0] taken;",
        "  always @(posedge clk) begin",
        f"    shift <= {{shift, feed}};",
        "    given <= shift;",
        "    taken <= result;",
        "  end",
        f"  {module} {INSTANCE}({', '.join(wires)});",
    ]
    last, width = "taken", outputs
    while width > 1:
        count = -(-width // FOLD)
        name = f"fold{count}"
        lines.append(f"  reg [{count - 1}:0] {name};")
        for i in range(count):
            high = min(FOLD * i + FOLD, width) - 1
            lines.append(f"  always @(posedge clk) {name}[{i}] <= ^{last}[{high}:{FOLD * i}];")
        last, width = name, count
    return "\n".join([*lines, f"  assign fold = {last};", "endmodule", ""])


def constraints():
    return "".join(
        f"set_property PACKAGE_PIN {pin} [get_ports {port}]\nset_property IOSTANDARD LVCMOS33 [get_ports {port}]\n"
        for port, pin in PINS.items()
    )


def map_block(module, ports, source, folder):
    """Maps a block in its harness and writes what nextpnr reads. Needs a process of its own, see `in_new_process`."""
    files = {"block.v": without_zeros(source), "harness.v": harness(module, ports), "pins.xdc": constraints()}
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    yosys = Yosys(folder)
    yosys.run(f"read_verilog {folder}/block.v {folder}/harness.v")
    yosys.run(f"hierarchy -check -top {TOP}")
    # The mapper must not move anything between block and harness.
    yosys.run(f"setattr -mod -set keep_hierarchy 1 {module}")
    yosys.run(f"synth_xilinx -family xc7 -top {TOP} -flatten")
    yosys.run("setattr -mod -unset keep_hierarchy *")
    yosys.run("flatten -noscopeinfo")
    yosys.run("delete t:$scopeinfo")
    yosys.run("opt_clean")
    faults = problems(yosys.run("check"))
    if faults:
        raise Failure(f"{module}: " + "; ".join(faults))
    yosys.run(f"write_json {folder}/netlist.json")


def in_new_process(function, *arguments):
    """Calls a function in a new process.

    Yosys numbers what it makes, through all designs of a process, and nextpnr's placement depends on names. Like this the
    netlist of a block does not depend on what was mapped before.
    """
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    except BrokenProcessPool:
        raise Failure("Yosys ended early; its log is beside the netlist") from None


class Nextpnr:
    """The program, wherever it is."""

    def __init__(self):
        found = os.environ.get("NEXTPNR") or PROGRAM
        self.program = shutil.which(found)
        self.in_root = self.program is None
        if self.in_root:
            if os.environ.get("NEXTPNR"):
                raise Failure(f"NEXTPNR is `{found}`, which is no program")
            if not os.path.exists(f"{ROOT}/usr/bin/{PROGRAM}"):
                raise Failure(f"{PROGRAM} is missing; ci/setup_route.sh installs it")
            if os.geteuid() != 0:
                raise Failure(f"only root may run the {PROGRAM} in {ROOT}; or set the variable NEXTPNR to another one")
        out = subprocess.run(**self.call(".", ["--version"]), capture_output=True, text=True)
        match = re.search(r"Version ([^)]+)\)", out.stdout + out.stderr)
        if match is None:
            raise Failure(f"{PROGRAM} does not run: {(out.stderr or out.stdout).strip()[-300:]}")
        self.version = match[1]

    def call(self, folder, arguments):
        """Returns how to run the program in `folder`, for subprocess.

        In the Debian root it needs /proc, and `folder` as /mnt. Both are mounted in a mount namespace that ends with the
        program, so nothing stays mounted whatever happens. Each of the commands in front becomes the next: one process.
        """
        if not self.in_root:
            return {"args": [os.path.abspath(self.program), *arguments], "cwd": folder}
        script = 'mount -t proc proc "$1/proc" && mount --bind "$2" "$1/mnt" && root=$1 && shift 2 && exec chroot "$root" env -C /mnt "$@"'
        return {"args": ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", ROOT, folder, PROGRAM, *arguments]}

    def route(self, folder, freq, seed):
        """Places and routes what is in `folder` and returns the report, and the memory that it took in MB."""
        report = os.path.join(folder, f"timing_{seed}.json")
        if os.path.exists(report):
            os.remove(report)
        options = ["--device", DEVICE, "--json", "netlist.json", "-o", "xdc=pins.xdc", "--freq", f"{freq:g}"]
        options += ["--timing-allow-fail", "--router", "router2", "--seed", str(seed), "--report", os.path.basename(report)]
        with open(os.path.join(folder, f"nextpnr_{seed}.log"), "w") as log:
            process = subprocess.Popen(**self.call(folder, options), stdout=log, stderr=subprocess.STDOUT)
            try:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                if process.returncode is None:
                    process.kill()
        code = process.returncode
        if code != 0:
            with open(log.name, errors="replace") as file:
                said = re.findall(r"^(?:ERROR|terminate|Assertion|mount|chroot|unshare).*", file.read(), re.MULTILINE)
            how = f"ended with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
            raise Failure(f"nextpnr {how}{': ' + said[-1] if said else ''} (see {log.name})")
        with open(report) as file:
            return json.load(file), usage.ru_maxrss // 1024


def longest_path(report, netlist):
    """Returns the path that sets the clock: nanoseconds of logic and of wires, LUT levels, where it begins and ends."""
    paths = [path for path in report["critical_paths"] if "posedge" in path["from"] and "posedge" in path["to"]]
    if not paths:
        raise Failure("nextpnr's report has no path from flop to flop")
    steps = max(paths, key=lambda path: sum(step["delay"] for step in path["path"]))["path"]
    wires = sum(step["delay"] for step in steps if step["type"] == "routing")
    whole = sum(step["delay"] for step in steps)
    name = name_of(netlist)

    def net(cell):
        known = netlist["cells"].get(cell)
        return plain(known and name(known) or cell).removeprefix(f"{INSTANCE}.")

    def kind(cell):
        # Of the cells that nextpnr makes itself, those of carry chains and LUTs can be on a path.
        known = netlist["cells"].get(cell)
        return known["type"] if known else "CARRY4" if "CARRY4" in cell else "LUT"

    cells = [step["to"]["cell"] for step in steps if step["type"] == "logic"]
    return {
        "logic_ns": round(whole - wires, 2),
        "routing_ns": round(wires, 2),
        "from": net(steps[0]["from"]["cell"]),
        "cells": [kind(cell) for cell in cells],
        "to": f"{net(steps[-1]['to']['cell'])} {steps[-1]['to']['port']}",
    }


def size(netlist):
    """Returns what the block takes, without the harness."""
    row = Row()
    for name, cell in netlist["cells"].items():
        if plain(name).startswith(f"{INSTANCE}."):
            row.add(cell["type"])
    return {"lut": row.lut, "lut_as_memory": row.memory_lut, "ff": row.ff, "bram36": row.bram36}


def speed(netlist, report):
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if len(clocks) != 1:
        raise Failure(f"nextpnr's report has {len(clocks)} clocks, not one")
    return {"mhz": round(clocks[0], 1), "path": longest_path(report, netlist)}


def best(result):
    return max(result["runs"], key=lambda run: run["mhz"])


def table(results):
    head = ("block", "LUT", "of them memory", "FF", "routed MHz", "path, ns", "of it logic", "routing")
    lines = [head]
    for result in results:
        if "failure" in result:
            lines.append((result["block"], "", "", "", "not routed", "", "", ""))
            continue
        path = best(result)["path"]
        low, high = (f"{choose(run['mhz'] for run in result['runs']):.0f}" for choose in (min, max))
        sizes = [f"{result[kind]:,}" for kind in ("lut", "lut_as_memory", "ff")]
        delays = [f"{ns:.2f}" for ns in (path["logic_ns"] + path["routing_ns"], path["logic_ns"], path["routing_ns"])]
        lines.append((result["block"], *sizes, low if low == high else f"{low}-{high}", *delays))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = ["  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(line)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verilog", nargs="+", help="the generated Verilog of a block, a file each; the first module is the block")
    parser.add_argument("--freq", type=float, default=WANTED_MHZ, metavar="MHZ", help="clock that nextpnr aims at (default: %(default)s)")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], metavar="N", help="seeds of the placement, a run each (default: 1)")
    parser.add_argument("--out", default="build/route", metavar="DIR", help="where logs and netlists go (default: %(default)s)")
    parser.add_argument("--json-out", metavar="FILE", help="write the figures as JSON to this file as well")
    arguments = parser.parse_args()

    sources = {}
    for path in arguments.verilog:
        try:
            with open(path) as file:
                sources[path] = file.read()
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror}") from None
    blocks = {path: ports_of(source, path) for path, source in sources.items()}
    nextpnr = Nextpnr()
    os.makedirs(arguments.out, exist_ok=True)
    start = time.monotonic()
    results = []
    for path, (module, ports) in blocks.items():
        block = module.removeprefix("verbena_")
        folder = os.path.join(arguments.out, block)
        os.makedirs(folder, exist_ok=True)

        def say(what):
            print(f"[{time.monotonic() - start:4.0f} s] {block}: {what}", file=sys.stderr, flush=True)

        result = {"block": block, "runs": []}
        try:
            say("map")
            in_new_process(map_block, module, ports, sources[path], folder)
            netlist = read_netlist(f"{folder}/netlist.json", TOP)
            result |= size(netlist)
            for seed in arguments.seed:
                say(f"place and route with seed {seed} (minutes)")
                begin = time.monotonic()
                report, memory = nextpnr.route(folder, arguments.freq, seed)
                figures = speed(netlist, report)
                result["runs"].append({"seed": seed, **figures, "seconds": round(time.monotonic() - begin), "memory_mb": memory})
                say(f"{figures['mhz']:.1f} MHz, {memory} MB")
        except Failure as failure:
            result["failure"] = str(failure)
            say(failure)
        results.append(result)
    report_all(results, nextpnr, arguments)


def report_all(results, nextpnr, arguments):
    failures = [f"{result['block']}: {result['failure']}" for result in results if "failure" in result]
    if arguments.json_out:
        out = {"what": WHAT, "device": DEVICE, "nextpnr": nextpnr.version, "freq": arguments.freq, "failures": failures, "blocks": results}
        with open(arguments.json_out, "w") as file:
            json.dump(out, file, indent=1)
    print(f"{DEVICE}, seed {', '.join(map(str, arguments.seed))}: {WHAT}\n")
    print(table(results))
    print(f"\n{WANTED_MHZ} MHz is the card's clock on UltraScale+, for comparison only. The path is that of the best run:")
    for result in results:
        if "failure" not in result:
            path = best(result)["path"]
            print(f"  {result['block']}: {path['from']} -> {' '.join(path['cells'])} -> {path['to']}")
    for failure in failures:
        print(f"FAILED  {failure}")
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
