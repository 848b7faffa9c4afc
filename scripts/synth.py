#!/usr/bin/env python3
"""Maps the core with Yosys for UltraScale+ and says what it takes of an Alveo U50.

Reads the generated Verilog, checks it (no latch, no loop, no net without a driver or with two), maps it block by
block, and prints LUTs, flops, block RAM, UltraRAM and the longest path in LUT levels for every block.
The exit code is not 0 when a check or a limit fails. What the numbers mean: docs/synthesis.md.

It needs the Python module `pyosys`: `make synth` sees to that.
"""

import argparse
import json
import os
import re
import sys
import time
from collections import defaultdict

# Alveo U50 (xcu50-fsvh2104-2-e).
DEVICE = {"lut": 872_000, "ff": 1_743_000, "bram36": 1344, "uram": 640}
LUT_LIMIT = 80_000
# A block of the second level gets a row of its own if it is made of this many modules; smaller ones count for their parent.
PARTS_OF_A_ROW = 8

# LUTs that a cell occupies. Two small LUTs that could share one are counted as two.
LUTS = {f"LUT{n}": 1 for n in range(1, 7)}
MEMORY_LUTS = {
    "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4, "RAM512X1S": 8,
    "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8,
    "RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM64X8SW": 8,
    "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1,
}  # fmt: skip
BRAM36 = {"RAMB18E1": 0.5, "RAMB18E2": 0.5, "RAMB36E1": 1, "RAMB36E2": 1}
# Outputs of these start a path and inputs end one.
CLOCKED = re.compile(r"^(FD[RSCP]E(_1)?|RAMB\d+E\d|URAM288(_BASE)?|DSP48E\d|SRL\w+)$")
# Wires or as good as wires in front of a LUT.
FREE = re.compile(r"^(MUXF[789]|INV|BUFG|IBUF|OBUF)$")
CARRY = re.compile(r"^CARRY[48]$")


def mend_library(share):
    """Corrects a slip in Yosys 0.70: its RAM512X1S has 16 address bits instead of 9, which its own mapping then refuses."""
    path = os.path.join(share, "xilinx", "lutrams_xcu.txt")
    try:
        with open(path) as file:
            text = file.read()
        mended = text.replace('option "ABITS" 16 {\n\t\tabits 16;', 'option "ABITS" 9 {\n\t\tabits 9;')
        if mended != text:
            with open(path, "w") as file:
                file.write(mended)
    except OSError as error:
        raise Failure(f"Yosys's description of its memories can't be mended: {error}") from None


class Failure(Exception):
    """What the user is told, without a trace."""


class Yosys:
    """A design, and a log of everything that Yosys says."""

    def __init__(self, folder):
        try:
            from pyosys import libyosys
        except ImportError:
            raise Failure("the Python module pyosys is missing; `make synth` installs it into .venv") from None
        mend_library(os.path.join(os.path.dirname(libyosys.__file__), "share"))
        # Yosys names every pass on file descriptor 1, which is the user's.
        sys.stdout.flush()
        sys.stdout = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        self.ys = libyosys
        self.design = libyosys.Design()
        self.log = os.path.join(folder, "yosys.log")
        self.scratch = os.path.join(folder, "last_pass.log")
        open(self.log, "w").close()
        self.start = time.monotonic()

    def run(self, command):
        """Runs one pass and returns what it printed."""
        self.ys.run_pass(f"tee -q -o {self.scratch} {command}", self.design)
        sys.stdout.flush()
        with open(self.scratch, errors="replace") as file:
            text = file.read()
        with open(self.log, "a") as file:
            file.write(f"\n### {time.monotonic() - self.start:.0f} s: {command}\n{text}")
        return text

    def say(self, what):
        print(f"[{time.monotonic() - self.start:4.0f} s] {what}", file=sys.stderr, flush=True)


def blocks_of(source, top):
    """Returns the modules that get a row: the first level, and the larger ones of the second."""
    modules = re.findall(r"^module ([\w$]+)", source, re.MULTILINE)
    if top not in modules:
        raise Failure(f"there is no module {top} in the Verilog")
    paths = [tuple(name.split("$")) for name in modules if name != top and name.startswith(top + "$")]
    size = defaultdict(int)
    for path in paths:
        for depth in range(1, len(path)):
            size[path[:depth]] += 1
    rows = [path for path in paths if (len(path) == 2 and size[path] > 0) or (len(path) == 3 and size[path] >= PARTS_OF_A_ROW)]
    return sorted(rows)


def without_zeros(source):
    """Returns the Verilog without the loops that zero the memories at power-up.

    The device zeroes them by itself, and for a memory of many entries Yosys takes longer for the loop than for all else.
    """
    return re.sub(r"for \(i = 0; i <= \d+; i = i \+ 1\) mem\[i\] = \d+'h0;", "begin end", source)


def problems(text):
    """Returns the complaints of Yosys' pass `check`."""
    found = re.findall(r"^Warning: (.*(?:\n    .*)*)", text, re.MULTILINE)
    match = re.search(r"Found and reported (\d+) problems", text)
    if match is None:
        raise Failure("Yosys' pass `check` did not report")
    return found if int(match[1]) else []


def check_design(yosys):
    """Checks the design at the level of its words, where a fault still has a name. Returns the faults."""
    faults = []
    latches = yosys.run("select -list t:$dlatch t:$adlatch t:$dlatchsr t:$sr")
    faults += [f"latch: {name}" for name in latches.split() if "/" in name]
    # Module by module: drivers. Flattened: loops that go through several blocks, and ports that nobody connects.
    faults += problems(yosys.run("check"))
    yosys.run("design -push-copy")
    yosys.run("flatten")
    faults += problems(yosys.run("check"))
    yosys.run("design -pop")
    return faults


class Row:
    def __init__(self):
        self.lut = self.memory_lut = self.ff = self.uram = self.levels = 0
        self.bram36 = 0.0

    def add(self, kind):
        self.lut += LUTS.get(kind, 0) + MEMORY_LUTS.get(kind, 0)
        self.memory_lut += MEMORY_LUTS.get(kind, 0)
        self.ff += kind.startswith("FD")
        self.bram36 += BRAM36.get(kind, 0)
        self.uram += kind.startswith("URAM")

    def plus(self, other):
        for field in ("lut", "memory_lut", "ff", "bram36", "uram"):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        self.levels = max(self.levels, other.levels)

    def figures(self):
        return {"lut": self.lut, "lut_as_memory": self.memory_lut, "ff": self.ff, "bram36": self.bram36, "uram": self.uram, "levels": self.levels}


def read_netlist(path, top):
    with open(path) as file:
        return json.load(file)["modules"][top]


def longest_paths(netlist, block_of):
    """Returns for every block the levels of the longest path that ends in it, and the longest path of all.

    A level is a LUT, a read of LUT RAM or a whole carry chain. Multiplexers behind LUTs (MUXF7 to MUXF9) are none.
    """
    cells = {name: cell for name, cell in netlist["cells"].items() if cell["type"] != "$scopeinfo"}
    driver = {}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) == "output":
                for bit in bits:
                    driver[bit] = name
    inputs, starts, unknown = {}, set(), set()
    for name, cell in cells.items():
        kind = cell["type"]
        if CLOCKED.match(kind) and not (kind.startswith("SRL")):
            starts.add(name)
            continue
        if kind.startswith("SRL"):
            # Which stage is read is decided without a clock.
            ports = [port for port in cell["connections"] if re.match(r"A\d?$", port)]
        elif kind.startswith("RAM"):
            ports = [port for port in cell["connections"] if re.match(r"(A|DPRA|ADDR)", port)]
        else:
            if not (kind in LUTS or FREE.match(kind) or CARRY.match(kind) or kind.startswith("DSP")):
                unknown.add(kind)
            ports = [port for port, way in cell["port_directions"].items() if way == "input"]
        sources = {driver[bit] for port in ports for bit in cell["connections"][port] if bit in driver}
        inputs[name] = sources

    def cost(name, source):
        kind = cells[name]["type"]
        if FREE.match(kind):
            return 0
        if CARRY.match(kind):
            return 0 if CARRY.match(cells[source]["type"]) else 1
        return 1

    # Levels in topological order; a loop would be left over.
    level, before = {name: 0 for name in starts}, {}
    waiting = {name: sum(1 for source in sources if source not in starts) for name, sources in inputs.items()}
    readers = defaultdict(list)
    for name, sources in inputs.items():
        for source in sources:
            if source not in starts:
                readers[source].append(name)
    ready = [name for name, count in waiting.items() if count == 0]
    done = 0
    while ready:
        name = ready.pop()
        done += 1
        best, via = 0 if FREE.match(cells[name]["type"]) else 1, None
        for source in inputs[name]:
            candidate = level[source] + cost(name, source)
            if candidate > best or via is None:
                best, via = max(best, candidate), source
        level[name], before[name] = best, via
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if done != len(inputs):
        raise Failure(f"{len(inputs) - done} mapped cells are in a loop")

    worst = {}
    for name, cell in cells.items():
        kind = cell["type"]
        if not (CLOCKED.match(kind) or kind.startswith("RAM")):
            continue
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) != "input":
                continue
            for bit in bits:
                source = driver.get(bit)
                if source is None:
                    continue
                block = block_of(name)
                if block not in worst or level[source] > worst[block][0]:
                    worst[block] = (level[source], name, source)
    paths = {}
    for block, (levels, end, at) in worst.items():
        path = [end]
        while at is not None:
            path.append(at)
            at = before.get(at)
        paths[block] = (levels, path[::-1])
    return paths, unknown


def name_of(netlist):
    """Returns a function that names a cell after a net that it drives."""
    names = {}
    for name, net in netlist["netnames"].items():
        if net.get("hide_name"):
            continue
        for index, bit in enumerate(net["bits"]):
            if bit not in names or len(name) < len(names[bit][0]):
                names[bit] = (name, index, len(net["bits"]))

    def find(cell):
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) == "output":
                for bit in bits:
                    if bit in names:
                        name, index, width = names[bit]
                        return name if width == 1 else f"{name}[{index}]"
        return None

    return find


def table(rows, total, device):
    head = ("block", "LUT", "of them memory", "FF", "BRAM36", "URAM", "levels")
    lines = [head]
    for path, row in rows:
        indent = "  " * (len(path) - 1)
        lines.append((indent + path[-1], f"{row.lut:,}", f"{row.memory_lut:,}", f"{row.ff:,}", f"{row.bram36:g}", f"{row.uram}", f"{row.levels}"))
    lines.append(("the core", f"{total.lut:,}", f"{total.memory_lut:,}", f"{total.ff:,}", f"{total.bram36:g}", f"{total.uram}", f"{total.levels}"))
    share = lambda used, kind: f"{100 * used / device[kind]:.1f} %"
    lines.append(("share of a U50", share(total.lut, "lut"), "", share(total.ff, "ff"), share(total.bram36, "bram36"), share(total.uram, "uram"), ""))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = []
    for number, line in enumerate(lines):
        text.append("  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(line)).rstrip())
        if number == 0 or number == len(lines) - 3:
            text.append("-" * (sum(widths) + 2 * (len(head) - 1)))
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verilog", help="the generated Verilog")
    parser.add_argument("--top", default="verbena_core", help="outermost module (default: %(default)s)")
    parser.add_argument("--out", default="build/synth", metavar="DIR", help="where the log and the netlist go (default: %(default)s)")
    parser.add_argument("--check-only", action="store_true", help="check for latches, loops and drivers, do not map")
    parser.add_argument("--max-levels", type=int, metavar="N", help="also fail if a path has more LUT levels than this")
    parser.add_argument("--paths", action="store_true", help="print the longest path of every block, not only of the core; the JSON report has them all")
    parser.add_argument("--uram", action="store_true", help="let large memories become UltraRAM; without it they become block RAM")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--json-out", metavar="FILE", help="write the JSON object to this file as well")
    arguments = parser.parse_args()

    try:
        with open(arguments.verilog) as file:
            source = file.read()
    except OSError as error:
        raise Failure(f"cannot read {arguments.verilog}: {error.strerror}") from None
    os.makedirs(arguments.out, exist_ok=True)
    yosys = Yosys(arguments.out)
    top = arguments.top
    blocks = blocks_of(source, top)

    yosys.run("scratchpad -set abc9.verify false")
    yosys.say("read")
    reduced = os.path.join(arguments.out, "read.v")
    with open(reduced, "w") as file:
        file.write(without_zeros(source))
    yosys.run(f"read_verilog {reduced}")
    yosys.run(f"hierarchy -check -top {top}")
    yosys.run("proc")
    yosys.say("check")
    faults = check_design(yosys)
    result = {"top": top, "faults": faults}
    if not arguments.check_only:
        for path in blocks:
            yosys.run(f"setattr -mod -set keep_hierarchy 1 {'$'.join(path)}")
        yosys.say(f"map, {len(blocks)} blocks (the longest step)")
        yosys.run(f"synth_xilinx -family xcup -top {top} -flatten -noiopad -noclkbuf{' -uram' if arguments.uram else ''}")
        yosys.say("measure")
        yosys.run("setattr -mod -unset keep_hierarchy *")
        yosys.run("flatten")
        faults += [f"mapped: {fault}" for fault in problems(yosys.run("check"))]
        netlist_file = os.path.join(arguments.out, "netlist.json")
        yosys.run(f"write_json {netlist_file}")
        result.update(measure(read_netlist(netlist_file, top), top, blocks))
    report(result, arguments)


def plain(name):
    """Returns a name without what Yosys puts in front of the parts of dissolved modules."""
    return name.replace("$flatten", "").replace("\\", "")


def measure(netlist, top, blocks):
    known = {path[1:] for path in blocks}

    def block_of(cell):
        parts = tuple(plain(cell).split(".")[:2])
        return parts if parts in known else parts[:1] if parts[:1] in known else ()

    own = defaultdict(Row)
    for name, cell in netlist["cells"].items():
        own[block_of(name)].add(cell["type"])
    paths, unknown = longest_paths(netlist, block_of)
    for block, (levels, _) in paths.items():
        own[block].levels = levels
    rows = []
    total = Row()
    for block in sorted(set(own) | known | {()}):
        row = Row()
        for other, part in own.items():
            if other[: len(block)] == block and block:
                row.plus(part)
        if block:
            rows.append((block, row))
        total.plus(own[block])
    rows.sort(key=lambda row: row[0])
    if own[()].lut or own[()].ff:
        rows.append((("(between blocks)",), own[()]))
    name = name_of(netlist)

    def step(cell):
        return {"cell": netlist["cells"][cell]["type"], "net": name(netlist["cells"][cell]) or f"{plain(cell).split('$')[0]}(unnamed)"}

    named = [{"block": ".".join(block), "levels": levels, "cells": [step(cell) for cell in path]} for block, (levels, path) in paths.items()]
    named.sort(key=lambda path: (-path["levels"], path["block"]))
    levels = named[0]["levels"] if named else 0
    return {"rows": rows, "total": total, "levels": levels, "paths": named, "unknown": sorted(unknown)}


def report(result, arguments):
    failures = [f"check: {fault}" for fault in result["faults"]]
    total = result.get("total")
    if total is not None:
        if total.lut > LUT_LIMIT:
            failures.append(f"{total.lut:,} LUTs are more than {LUT_LIMIT:,}")
        for kind, used in (("bram36", total.bram36), ("uram", total.uram)):
            if used > DEVICE[kind]:
                failures.append(f"{used:g} {kind} are more than the {DEVICE[kind]} of a U50")
        if arguments.max_levels is not None and result["levels"] > arguments.max_levels:
            failures.append(f"a path has {result['levels']} LUT levels, more than {arguments.max_levels}")
        failures += [f"cell {kind} is unknown to this script" for kind in result["unknown"]]
    if arguments.json or arguments.json_out:
        out = {"top": result["top"], "failures": failures, "device": DEVICE, "lut_limit": LUT_LIMIT}
        if total is not None:
            out["total"] = total.figures()
            out["blocks"] = [{"block": ".".join(path), **row.figures()} for path, row in result["rows"]]
            out["longest_paths"] = result["paths"]
        if arguments.json_out:
            with open(arguments.json_out, "w") as file:
                json.dump(out, file, indent=1)
        if arguments.json:
            print(json.dumps(out))
    if not arguments.json:
        if total is not None:
            print(table(result["rows"], total, DEVICE))
            print(f"\nlimit: {LUT_LIMIT:,} LUTs")
            for path in result["paths"][: None if arguments.paths else 1]:
                print(f"\nlongest path that ends in {path['block'] or 'the core itself'}, {path['levels']} LUT levels:")
                for step in path["cells"]:
                    print(f"  {step['cell']:10} {step['net']}")
            print()
        for failure in failures:
            print(f"FAILED  {failure}")
        if not failures:
            print("checks: no latch, no loop, no undriven net, no net with two drivers" + ("" if total is None else ", within the limits"))
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
