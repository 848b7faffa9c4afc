//! A block under test, one clock at a time.

use rust_hdl::core::atom::{Atom, AtomKind};
use rust_hdl::core::probe::Probe;
use rust_hdl::core::simulate::simulate;
use rust_hdl::prelude::*;

use super::lockstep;

/// A port of a block: name as in the generated Verilog, direction and width.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Port {
    pub name: String,
    pub is_input: bool,
    pub width: usize,
}

/// A block under test with the record of its ports.
pub struct Bench<B: Block> {
    /// The block. Set inputs through `next`, call [`Bench::settle`], look at outputs, call [`Bench::edge`].
    pub uut: B,
    name: String,
    clock: fn(&mut B) -> &mut Signal<In, Clock>,
    ports: Vec<Port>,
    trace: Vec<Vec<String>>,
    cycles: u64,
}

impl<B: Block> Bench<B> {
    /// Returns a bench for `uut`; `name` appears in messages, `clock` points at its clock.
    pub fn new(name: &str, mut uut: B, clock: fn(&mut B) -> &mut Signal<In, Clock>) -> Self {
        uut.connect_all();
        let ports = TopPorts::of(&uut).ports;
        Self { uut, name: name.into(), clock, ports, trace: vec![], cycles: 0 }
    }

    /// Lets combinatorial paths settle.
    pub fn settle(&mut self) {
        assert!(simulate(&mut self.uut, 100), "{}: combinatorial paths do not settle", self.name);
    }

    /// Records the ports and gives one rising edge.
    pub fn edge(&mut self) {
        self.settle();
        self.trace.push(TopPorts::of(&self.uut).values);
        (self.clock)(&mut self.uut).next.clk = true;
        self.settle();
        (self.clock)(&mut self.uut).next.clk = false;
        self.settle();
        self.cycles += 1;
    }

    /// Gives `n` rising edges with the inputs as they are.
    pub fn cycles(&mut self, n: usize) {
        for _ in 0..n {
            self.edge();
        }
    }

    /// Returns the number of edges given so far.
    pub fn clock_count(&self) -> u64 {
        self.cycles
    }

    /// Repeats the whole run on verilated Verilog and fails where an output differs.
    pub fn finish(self) {
        let verilog = crate::untangle(&generate_verilog(&self.uut));
        lockstep::check(&self.name, &verilog, &self.ports, &self.trace);
    }
}

/// Collects the ports of the outermost block and their values as hexadecimal digits.
#[derive(Default)]
struct TopPorts {
    depth: usize,
    namespace: Vec<String>,
    ports: Vec<Port>,
    values: Vec<String>,
}

impl TopPorts {
    fn of(block: &dyn Block) -> Self {
        let mut probe = Self::default();
        block.accept("top", &mut probe);
        probe
    }
}

impl Probe for TopPorts {
    fn visit_start_scope(&mut self, _name: &str, _node: &dyn Block) {
        self.depth += 1;
    }

    fn visit_start_namespace(&mut self, name: &str, _node: &dyn Block) {
        self.namespace.push(name.into());
    }

    fn visit_atom(&mut self, name: &str, signal: &dyn Atom) {
        let is_input = signal.kind() == AtomKind::InputParameter;
        if self.depth == 1 && (is_input || signal.kind() == AtomKind::OutputParameter) {
            let mut path = self.namespace.clone();
            path.push(name.into());
            self.ports.push(Port { name: path.join("$"), is_input, width: signal.bits() });
            let literal = format!("{:x}", signal.verilog());
            self.values.push(literal.split_once("'h").map_or(literal.clone(), |(_, digits)| digits.to_string()));
        }
    }

    fn visit_end_namespace(&mut self, _name: &str, _node: &dyn Block) {
        self.namespace.pop();
    }

    fn visit_end_scope(&mut self, _name: &str, _node: &dyn Block) {
        self.depth -= 1;
    }
}
