//! Splits the one `always @(*)` block that RustHDL writes for a module into one for each signal.
//!
//! A kernel describes all combinatorial signals of a block in one sequence, and RustHDL writes it as
//! one `always` block. Simulators order whole blocks: with `valid` computed beside `ready`, two
//! neighbours look like a loop though no signal depends on itself, and the simulator evaluates them
//! over and over. So each signal gets a block of its own, with the statements that assign it under
//! the conditions that they stand under.
//!
//! A signal is read at its final value from another block. A statement that reads an earlier value
//! (one that a later statement overwrites) stays in one block with that signal, so the meaning never
//! changes. Signals that only flops and memory write ports take in stay together: they can't be part
//! of a loop, and their conditions are then evaluated once.
//!
//! A signal that is always the same gets a continuous assignment instead: an `always @(*)` that reads nothing waits for a change that never
//! comes, and newer simulators refuse it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// A statement of a combinatorial block.
#[derive(Debug, PartialEq)]
enum Statement {
    Assign { target: String, text: String, at: usize },
    If { arms: Vec<(String, Vec<Statement>)>, otherwise: Option<Vec<Statement>>, at: usize },
    Case { subject: String, arms: Vec<(String, Vec<Statement>)>, at: usize },
}

/// Returns `verilog` with its combinatorial blocks split. Text that is not RustHDL's own output passes unchanged.
pub fn untangle(verilog: &str) -> String {
    let mut out = String::with_capacity(verilog.len());
    let mut module = Module::default();
    let mut lines = verilog.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "always @(*) begin" {
            module.note(line, out.len());
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let mut reader = Reader { lines: &mut lines, count: 0 };
        let body = reader.block();
        for group in groups(&body) {
            if let Some(values) = group.iter().map(|target| module.constant(&body, target)).collect::<Option<Vec<_>>>() {
                for (target, value) in group.iter().zip(values) {
                    writeln!(out, "    assign {target} = {value};").expect("a string grows");
                    module.make_wire(&mut out, target);
                }
                continue;
            }
            out.push_str("    always @(*) begin\n");
            write_block(&mut out, &body, &group, 8);
            out.push_str("    end\n");
        }
    }
    out
}

/// What the module that is being written has declared so far.
#[derive(Default)]
struct Module {
    /// Where the word `reg` of each variable stands in what is written.
    regs: HashMap<String, usize>,
    parameters: BTreeSet<String>,
}

impl Module {
    /// Takes note of a line that is written at `at`.
    fn note(&mut self, line: &str, at: usize) {
        let text = line.trim();
        if text.starts_with("module ") {
            *self = Self::default();
        }
        let Some(declared) = text.strip_suffix(';') else { return };
        if let Some((name, _)) = declared.strip_prefix("localparam ").and_then(|rest| rest.split_once(" = ")) {
            self.parameters.insert(name.trim().to_string());
        } else if declared.starts_with("reg ") || declared.starts_with("output reg ") {
            let name = declared.rsplit(' ').next().unwrap_or_default().to_string();
            self.regs.insert(name, at + line.find("reg ").unwrap_or_default());
        }
    }

    /// Returns the value of a signal that is always the same.
    fn constant<'a>(&self, body: &'a [Statement], target: &str) -> Option<&'a str> {
        let mut last = None;
        for statement in body.iter().filter(|statement| assigns(std::slice::from_ref(statement), target)) {
            let Statement::Assign { text, .. } = statement else { return None };
            let value = text.strip_prefix(target)?.strip_prefix(" = ")?.strip_suffix(';')?;
            last = names(value).all(|name| self.parameters.contains(name)).then_some(value);
            last?;
        }
        last.filter(|_| self.regs.contains_key(target))
    }

    /// Declares a variable as a wire, since a continuous assignment drives it.
    fn make_wire(&mut self, out: &mut String, name: &str) {
        let at = self.regs.remove(name).expect("a signal that is declared");
        out.replace_range(at..at + "reg".len(), "wire");
        self.regs.values_mut().filter(|other| **other > at).for_each(|other| *other += 1);
    }
}

/// Reads statements line by line, as RustHDL lays them out.
struct Reader<'a, 'b> {
    lines: &'a mut std::str::Lines<'b>,
    count: usize,
}

impl Reader<'_, '_> {
    /// Reads up to the `end` of a block whose `begin` has been read.
    fn block(&mut self) -> Vec<Statement> {
        let mut statements = vec![];
        loop {
            let line = self.lines.next().expect("a block ends").trim();
            self.count += 1;
            let at = self.count;
            if line == "end" {
                return statements;
            } else if line.is_empty() || line.starts_with("//") {
                continue;
            } else if let Some(condition) = line.strip_prefix("if (").and_then(|rest| rest.strip_suffix(") begin")) {
                let arms = vec![(condition.to_string(), self.block())];
                statements.push(Statement::If { arms, otherwise: None, at });
            } else if let Some(condition) = line.strip_prefix("else if (").and_then(|rest| rest.strip_suffix(") begin")) {
                let block = self.block();
                let Some(Statement::If { arms, .. }) = statements.last_mut() else { panic!("`else` without `if`: {line}") };
                arms.push((condition.to_string(), block));
            } else if line == "else begin" {
                let block = self.block();
                let Some(Statement::If { otherwise, .. }) = statements.last_mut() else { panic!("`else` without `if`") };
                *otherwise = Some(block);
            } else if let Some(subject) = line.strip_prefix("case (").and_then(|rest| rest.strip_suffix(')')) {
                statements.push(Statement::Case { subject: subject.to_string(), arms: self.arms(), at });
            } else {
                let (target, _) = line.split_once(" = ").unwrap_or_else(|| panic!("not a statement: {line}"));
                let target = target.split_once("[(").map_or(target, |(base, _)| base).to_string();
                statements.push(Statement::Assign { target, text: line.to_string(), at });
            }
        }
    }

    fn arms(&mut self) -> Vec<(String, Vec<Statement>)> {
        let mut arms = vec![];
        loop {
            let line = self.lines.next().expect("a case ends").trim();
            self.count += 1;
            match line {
                "endcase" => return arms,
                "" => continue,
                _ => {}
            }
            let label = line.strip_suffix(':').unwrap_or_else(|| panic!("not a case label: {line}")).to_string();
            let begin = self.lines.next().expect("a case arm has a block").trim();
            assert_eq!(begin, "begin", "a case arm has a block");
            arms.push((label, self.block()));
        }
    }
}

/// Returns the names in an expression; the digits of literals such as `64'hc` are none.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '\''))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !word.contains('\''))
}

/// What a walk over a block finds: where each signal is assigned, and what each assignment reads where.
#[derive(Default)]
struct Uses {
    assigned: BTreeMap<String, Vec<usize>>,
    reads: Vec<(String, String, usize)>,
}

impl Uses {
    fn walk(&mut self, block: &[Statement], conditions: &[(String, usize)]) {
        for statement in block {
            match statement {
                Statement::Assign { target, text, at } => {
                    self.assigned.entry(target.clone()).or_default().push(*at);
                    let (left, right) = text.split_once(" = ").expect("an assignment");
                    let offset = left.strip_prefix(target.as_str()).unwrap_or_default();
                    for name in names(right).chain(names(offset)) {
                        self.reads.push((target.clone(), name.to_string(), *at));
                    }
                    for (condition, at) in conditions {
                        for name in names(condition) {
                            self.reads.push((target.clone(), name.to_string(), *at));
                        }
                    }
                }
                Statement::If { arms, otherwise, at } => {
                    let mut inner = conditions.to_vec();
                    inner.extend(arms.iter().map(|(condition, _)| (condition.clone(), *at)));
                    for (_, block) in arms {
                        self.walk(block, &inner);
                    }
                    if let Some(block) = otherwise {
                        self.walk(block, &inner);
                    }
                }
                Statement::Case { subject, arms, at } => {
                    let mut inner = conditions.to_vec();
                    inner.push((subject.clone(), *at));
                    for (_, block) in arms {
                        self.walk(block, &inner);
                    }
                }
            }
        }
    }
}

/// Tells whether only a clock edge takes a signal in.
fn is_clocked_sink(name: &str) -> bool {
    ["$d", "$write_enable", "$write_address", "$write_data"].iter().any(|suffix| name.ends_with(suffix))
}

/// Returns the sets of signals that need a block of their own each, in the order in which they are first assigned.
fn groups(body: &[Statement]) -> Vec<BTreeSet<String>> {
    let mut uses = Uses::default();
    uses.walk(body, &[]);
    let mut first: Vec<(&String, usize)> = uses.assigned.iter().map(|(name, places)| (name, places[0])).collect();
    first.sort_by_key(|(_, at)| *at);
    let mut parent: HashMap<String, String> = uses.assigned.keys().map(|name| (name.clone(), name.clone())).collect();
    fn root(parent: &HashMap<String, String>, name: &str) -> String {
        let mut name = name.to_string();
        while parent[&name] != name {
            name = parent[&name].clone();
        }
        name
    }
    let mut join = |a: &str, b: &str| {
        let (a, b) = (root(&parent, a), root(&parent, b));
        if a != b {
            parent.insert(a, b);
        }
    };
    for (target, name, at) in &uses.reads {
        if name != target && uses.assigned.get(name).is_some_and(|places| places.iter().any(|place| place > at)) {
            join(target, name);
        }
    }
    let sinks: Vec<&String> = uses.assigned.keys().filter(|name| is_clocked_sink(name)).collect();
    for pair in sinks.windows(2) {
        join(pair[0], pair[1]);
    }
    let mut order: Vec<String> = vec![];
    let mut sets: HashMap<String, BTreeSet<String>> = HashMap::new();
    for (name, _) in first {
        let root = root(&parent, name);
        if !sets.contains_key(&root) {
            order.push(root.clone());
        }
        sets.entry(root).or_default().insert(name.clone());
    }
    order.into_iter().map(|root| sets.remove(&root).expect("each root has a set")).collect()
}

/// Tells whether a block assigns any signal of a group.
fn assigns_any(block: &[Statement], group: &BTreeSet<String>) -> bool {
    has_assignment(block, &|target| group.contains(target))
}

/// Tells whether a block assigns a signal.
fn assigns(block: &[Statement], signal: &str) -> bool {
    has_assignment(block, &|target| target == signal)
}

fn has_assignment(block: &[Statement], is_meant: &dyn Fn(&str) -> bool) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Assign { target, .. } => is_meant(target),
        Statement::If { arms, otherwise, .. } => {
            arms.iter().map(|(_, block)| block).chain(otherwise).any(|block| has_assignment(block, is_meant))
        }
        Statement::Case { arms, .. } => arms.iter().any(|(_, block)| has_assignment(block, is_meant)),
    })
}

/// Writes the statements of a block that assign signals of a group, with their conditions.
fn write_block(out: &mut String, block: &[Statement], group: &BTreeSet<String>, indent: usize) {
    for statement in block {
        if !assigns_any(std::slice::from_ref(statement), group) {
            continue;
        }
        match statement {
            Statement::Assign { text, .. } => writeln!(out, "{:indent$}{text}", "").expect("a string grows"),
            Statement::If { arms, otherwise, .. } => {
                for (index, (condition, block)) in arms.iter().enumerate() {
                    let word = if index == 0 { "if" } else { "else if" };
                    writeln!(out, "{:indent$}{word} ({condition}) begin", "").expect("a string grows");
                    write_block(out, block, group, indent + 4);
                    writeln!(out, "{:indent$}end", "").expect("a string grows");
                }
                if let Some(block) = otherwise.as_ref().filter(|block| assigns_any(block, group)) {
                    writeln!(out, "{:indent$}else begin", "").expect("a string grows");
                    write_block(out, block, group, indent + 4);
                    writeln!(out, "{:indent$}end", "").expect("a string grows");
                }
            }
            Statement::Case { subject, arms, .. } => {
                writeln!(out, "{:indent$}case ({subject})", "").expect("a string grows");
                for (label, block) in arms {
                    writeln!(out, "{:indent$}    {label}: begin", "").expect("a string grows");
                    write_block(out, block, group, indent + 8);
                    writeln!(out, "{:indent$}    end", "").expect("a string grows");
                }
                writeln!(out, "{:indent$}endcase", "").expect("a string grows");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "\
    always @(*) begin
        a$clock = clock;
        a$d = a$q;
        b$d = b$q;
        total = x + 8'h3;
        old = total;
        total = total + y;
        ready = 1'b0;
        out[(64'h0)+:(8)] = total;
        case (state$q)
            State$Idle:
                begin
                    ready = 1'b1;
                end
            default:
                begin
                    a$d = total;
                end
        endcase
        if (ready & go) begin
            b$d = 4'b1;
        end
        else begin
            out[(64'h8)+:(8)] = y;
        end
    end
";

    #[test]
    fn each_signal_gets_a_block_with_its_conditions() {
        let text = untangle(BLOCK);
        let blocks: Vec<&str> = text.split("    always @(*) begin\n").skip(1).collect();
        let of = |target: &str| *blocks.iter().find(|block| block.contains(&format!(" {target}"))).unwrap();
        assert!(!of("ready = 1'b0").contains("a$d"));
        assert!(of("ready = 1'b0").contains("State$Idle: begin"));
        // An empty arm stays, or the next would be taken in its place.
        assert!(of("a$d = total").contains("State$Idle: begin\n            end"));
        assert!(of("out[(64'h0)").contains("if (ready & go) begin\n        end\n        else begin"));
    }

    #[test]
    fn a_reader_of_an_earlier_value_stays_with_its_signal() {
        let text = untangle(BLOCK);
        let block = text.split("    always @(*) begin\n").find(|block| block.contains("old = total")).unwrap();
        assert!(block.contains("total = total + y"));
        assert!(!block.contains("out"));
    }

    #[test]
    fn what_flops_take_in_stays_together() {
        let text = untangle(BLOCK);
        let block = text.split("    always @(*) begin\n").find(|block| block.contains("a$d = a$q")).unwrap();
        assert!(block.contains("b$d = 4'b1"));
    }

    #[test]
    fn what_is_always_the_same_is_assigned_for_good() {
        let module = "\
module top(ready,other);
    output reg  ready;
    output reg  [7:0] other;
    localparam State$Idle = 2'h0;
    reg  [1:0] state$d;
    reg  [7:0] ram$write_data;
    reg  part$data;
    reg  free;
    always @(*) begin
        ready = 1'b0;
        ready = 1'b1;
        state$d = State$Idle;
        ram$write_data = 8'h7;
        other[(64'h0)+:(8)] = 8'h1;
        part$data = 1'b0;
        if (free) begin
            part$data = 1'b1;
        end
        free = other[0];
    end
endmodule
module top$next(ready);
    output reg  ready;
    always @(*) begin
        ready = State$Idle;
    end
endmodule
";
        let text = untangle(module);
        assert!(text.contains("    output wire  ready;\n    output reg  [7:0] other;"), "{text}");
        assert!(text.contains("    wire  [1:0] state$d;\n    wire  [7:0] ram$write_data;\n    reg  part$data;\n    reg  free;"), "{text}");
        assert!(text.contains("    assign ready = 1'b1;\n    assign ram$write_data = 8'h7;\n    assign state$d = State$Idle;\n"), "{text}");
        assert_eq!(text.matches("assign").count(), 3, "a parameter of another module is none, and a part is not the whole\n{text}");
        assert!(
            text.ends_with("    output reg  ready;\n    always @(*) begin\n        ready = State$Idle;\n    end\nendmodule\n"),
            "{text}"
        );
    }

    #[test]
    fn other_text_passes_unchanged() {
        let text = "module top(a);\n    always @(posedge clock) begin\n        q <= d;\n    end\nendmodule\n";
        assert_eq!(untangle(text), text);
    }
}
