//! Where beats are lost: what the stages of a card did in the clocks of a measurement.

use verbena_abi::stages::{Path, Stage};
use verbena_host::StageCount;

/// Share of the clocks above which stalls count: less is what arbiters and FIFOs take now and then.
const STALLED: f64 = 0.02;
/// Share of the clocks in which a stage may be idle and still be one that never runs dry.
const DRY: f64 = 0.05;

/// Stages that stall without loss: payload that waits for its header or for a decision, writes that wait for their lines, answers that wait by rule for
/// what they can cover. If what takes from them is too slow, a stage before or beside them stalls too.
const WAITING: [Stage; 4] = [Stage::MergeLines, Stage::RxLines, Stage::ScatterRequests, Stage::Answers];

/// What one stage did.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct StageUse {
    /// Name, as in [`Stage`].
    pub name: &'static str,
    /// `Send`, `Receive` or `Complete`.
    pub path: &'static str,
    /// Clocks in which it moved something.
    pub beats: u32,
    /// Clocks in which it offered something that was not taken.
    pub stalls: u32,
    /// All others.
    pub idle: u32,
}

/// What the stages of a card did.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CardStages {
    /// Clocks in which they were counted.
    pub clocks: u32,
    /// All stages, in the order in which a write walks through the card.
    pub stages: Vec<StageUse>,
    /// Names of the stages behind which beats are lost: what takes from them takes too little. At most one of each path.
    pub held_up: Vec<&'static str>,
    /// Name of the stage with the most beats, if anything moved.
    pub busiest: Option<&'static str>,
}

impl CardStages {
    /// Returns what the stages did that counted so in `clocks` clocks.
    pub fn new(clocks: u32, counts: impl IntoIterator<Item = StageCount>) -> Self {
        let idle = |beats: u32, stalls: u32| clocks.saturating_sub(beats.saturating_add(stalls));
        let stages = counts
            .into_iter()
            .map(|count| StageUse {
                name: count.name,
                path: path_name(count.stage.path()),
                beats: count.beats,
                stalls: count.stalls,
                idle: idle(count.beats, count.stalls),
            })
            .collect();
        let mut found = Self { clocks, stages, held_up: Vec::new(), busiest: None };
        found.held_up = Path::ALL.iter().filter_map(|path| found.find_held_up(*path)).collect();
        let moved = found.stages.iter().rev().filter(|stage| stage.beats != 0);
        // Of equals the first.
        found.busiest = moved.max_by_key(|stage| stage.beats).map(|stage| stage.name);
        found
    }

    /// Returns the stage of this name.
    pub fn get(&self, stage: Stage) -> StageUse {
        self.stages[stage as usize]
    }

    /// Returns a number of clocks in per cent of all.
    pub fn per_cent(&self, clocks: u32) -> f64 {
        100.0 * self.share(clocks)
    }

    fn share(&self, clocks: u32) -> f64 {
        f64::from(clocks) / f64::from(self.clocks.max(1))
    }

    /// Stalls run against the stream: what takes too little holds up the stages before it, back to one behind which there is more room than work. So the cause
    /// is behind the last stage of the path that stalls and never runs dry: farther on, stages stall too, in the bursts that come through, but are idle in between.
    fn find_held_up(&self, path: Path) -> Option<&'static str> {
        let is_held_up = |stage: &StageUse| self.share(stage.stalls) > STALLED && self.share(stage.idle) < DRY;
        let causes = Stage::ALL.iter().rev().filter(|(stage, _, _)| stage.path() == path && !WAITING.contains(stage));
        causes.map(|(stage, _, _)| self.get(*stage)).find(is_held_up).map(|stage| stage.name)
    }
}

fn path_name(path: Path) -> &'static str {
    match path {
        Path::Send => "Send",
        Path::Receive => "Receive",
        Path::Complete => "Complete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a card on which only these stages did something: beats and stalls of 1,000 clocks.
    fn card(busy: &[(Stage, u32, u32)]) -> CardStages {
        let count = |&(stage, name, _): &(Stage, &'static str, &str)| {
            let (_, beats, stalls) = busy.iter().find(|(one, _, _)| *one == stage).copied().unwrap_or((stage, 0, 0));
            StageCount { stage, name, beats, stalls }
        };
        CardStages::new(1000, Stage::ALL.iter().map(count))
    }

    #[test]
    fn the_last_stage_that_stalls_and_never_runs_dry_is_named() {
        // The MAC takes 78 of 100, and all before it stall.
        let wire = [
            (Stage::FetchedLines, 12, 988),
            (Stage::GatheredLines, 750, 250),
            (Stage::FrameBeats, 780, 219),
            (Stage::TxBeats, 780, 220),
            (Stage::Acks, 10, 0),
        ];
        assert_eq!(card(&wire).held_up, ["TxBeats"]);
        // Headers are the narrow place: frames behind it stall at the MAC in bursts, and run dry in between.
        let headers = [(Stage::FetchedLines, 300, 700), (Stage::Packets, 300, 700), (Stage::Headers, 300, 0), (Stage::TxBeats, 600, 100)];
        assert_eq!(card(&headers).held_up, ["Packets"]);
        // Both ways at once.
        let memory = [(Stage::RxBeats, 900, 0), (Stage::RxHeads, 300, 700), (Stage::RxLines, 600, 400), (Stage::WriteBeats, 300, 690)];
        assert_eq!(card(&[&headers[..], &memory[..]].concat()).held_up, ["Packets", "WriteBeats"]);
    }

    #[test]
    fn the_busiest_stage_is_named_and_what_only_waits_is_not_held_up() {
        // Lines and writes wait for each other, answers for more to cover, and frames come in all the same.
        let idle = card(&[
            (Stage::RxBeats, 900, 0),
            (Stage::RxHeads, 300, 20),
            (Stage::RxLines, 600, 400),
            (Stage::ScatterRequests, 300, 690),
            (Stage::Answers, 3, 997),
        ]);
        assert_eq!((idle.held_up.as_slice(), idle.busiest), ([].as_slice(), Some("RxBeats")));
        assert_eq!(idle.get(Stage::RxHeads).idle, 680);
        assert_eq!(idle.per_cent(idle.get(Stage::RxHeads).stalls), 2.0);
        // Reads are the narrow place: the payload that is there waits for the rest of its packet.
        let reads = [
            (Stage::FetchedLines, 5, 995),
            (Stage::PayloadRequests, 5, 990),
            (Stage::GatheredLines, 300, 0),
            (Stage::MergeLines, 300, 700),
        ];
        assert_eq!(card(&reads).held_up, ["PayloadRequests"]);
        assert_eq!(card(&[(Stage::RxBeats, 5, 0), (Stage::Answers, 5, 0)]).busiest, Some("RxBeats"), "the first of equals");
        assert_eq!(card(&[]).busiest, None, "a card that does nothing");
    }
}
