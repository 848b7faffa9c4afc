//! The table, or JSON.

use serde_json::json;

use crate::cases::Case;

/// What was measured of a case, for each request or completion.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The case.
    pub case: &'static Case,
    /// Instructions, if they were counted.
    pub instructions: Option<f64>,
    /// Nanoseconds, if they were measured.
    pub ns: Option<f64>,
}

/// Prints figures: a table, or one object of JSON.
pub fn print(figures: &[Figure], as_json: bool) {
    if as_json {
        let cases: Vec<_> = figures
            .iter()
            .map(|figure| json!({ "name": figure.case.name, "title": figure.case.title, "instructions": figure.instructions, "ns": figure.ns }))
            .collect();
        return println!("{}", json!({ "cases": cases }));
    }
    println!("{:<44}{:>14}{:>8}", "", "instructions", "ns");
    for figure in figures {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_string(), |value| format!("{value:.1}"));
        println!("{:<44}{:>14}{:>8}", figure.case.title, number(figure.instructions), number(figure.ns));
    }
}
