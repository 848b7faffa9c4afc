//! The stages of one write on idle cards.

use verbena_host::{Completion, Sge, WriteFlags};

use super::{check_status, Bench, BenchError};
use crate::tap::Passed;

/// Where time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// In a card.
    Card,
    /// In a host and on its PCIe link.
    Host,
    /// On the wire and in the MACs.
    Wire,
}

/// A stage, from the end of the one before.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Stage {
    /// What happens.
    pub name: &'static str,
    /// Where.
    pub part: Part,
    /// How long, clocks.
    pub clocks: u64,
}

/// A write from the call that posts it to the poll that finds its completion.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Latency {
    /// Bytes of the message.
    pub message_bytes: u32,
    /// The message was inline data of its request: there is no read of payload.
    pub inline: bool,
    /// The stages, in order. Their sum is the whole.
    pub stages: Vec<Stage>,
}

impl Latency {
    /// Returns the clocks of all stages in `part`.
    pub fn clocks_in(&self, part: Part) -> u64 {
        self.stages.iter().filter(|stage| stage.part == part).map(|stage| stage.clocks).sum()
    }

    /// Returns the clocks of the whole write.
    pub fn clocks(&self) -> u64 {
        self.stages.iter().map(|stage| stage.clocks).sum()
    }
}

/// Clocks after which a write that does not complete is given up.
const LIMIT: u64 = 100_000;

impl Bench {
    /// Posts one write of `message` bytes from A to B on idle cards, and returns its stages.
    pub fn latency(&mut self, message: u32) -> Result<Latency, BenchError> {
        for number in 0..2 {
            self.world.take_tap(number);
        }
        let start = self.world.clock();
        let source = &mut self.sources[0];
        let inline = self.inline_bytes > 0;
        let sge = Sge { va: source.from.0, len_bytes: message, lkey: source.from.1 };
        if inline {
            let mut bytes = vec![0; message as usize];
            source.end.mr.memory().copy_out(0, &mut bytes)?;
            source.queues[0].write_inline(0, &[&bytes], source.to.0, source.to.1, WriteFlags::NONE)?;
        } else {
            source.queues[0].write(0, &[sge], source.to.0, source.to.1, WriteFlags::NONE)?;
        }
        let mut room = [Completion::default()];
        while self.sources[0].end.cq.poll(&mut room) == 0 {
            self.world.run(1)?;
            if self.world.clock() - start > LIMIT {
                self.give_up_after(start)?;
            }
        }
        check_status(&room)?;
        let end = self.world.clock();
        // The acknowledgement's stages lie between the arrival at B and the completion entry at A.
        let (a, b) = (self.world.take_tap(0), self.world.take_tap(1));
        let at = |notes: &[(u64, Passed)], what: Passed, after: u64| {
            notes.iter().find(|(clock, passed)| *passed == what && *clock >= after).map_or(end, |(clock, _)| *clock)
        };
        let last = |notes: &[(u64, Passed)], what: Passed, before: u64| {
            notes.iter().rev().find(|(clock, passed)| *passed == what && *clock <= before).map_or(start, |(clock, _)| *clock)
        };
        let rung = at(&a, Passed::RegisterWrite, start);
        let fetch = at(&a, Passed::ReadRequest, rung);
        let fetched = at(&a, Passed::ReadEnd, fetch);
        let sent = at(&a, Passed::FrameStart, fetched);
        let gather = if inline { fetched } else { at(&a, Passed::ReadRequest, fetched) };
        let gathered = if inline { fetched } else { at(&a, Passed::ReadEnd, gather).min(sent) };
        let answered = at(&b, Passed::FrameStart, sent);
        let arrived = last(&b, Passed::ArrivalEnd, answered);
        let written = last(&b, Passed::WriteEnd, answered).max(arrived);
        let acknowledged = last(&b, Passed::WriteAnswer, answered).max(written);
        let returned = at(&a, Passed::ArrivalEnd, answered);
        let entered = at(&a, Passed::WriteEnd, returned);
        let marks = [
            ("doorbell crosses PCIe", Part::Host, rung),
            ("doorbell to request fetch", Part::Card, fetch),
            ("host answers the fetch", Part::Host, fetched),
            ("request to payload read", Part::Card, gather.min(gathered)),
            ("host answers the payload read", Part::Host, gathered),
            ("payload to first beat on the wire", Part::Card, sent),
            ("wire", Part::Wire, arrived),
            ("last beat to last payload write", Part::Card, written),
            ("host takes the payload", Part::Host, acknowledged),
            ("payload taken to ACK on the wire", Part::Card, answered),
            ("wire, ACK", Part::Wire, returned),
            ("ACK to completion entry", Part::Card, entered),
            ("entry crosses PCIe, is polled", Part::Host, end),
        ];
        let mut stages = Vec::with_capacity(marks.len());
        let mut before = start;
        for (name, part, clock) in marks {
            stages.push(Stage { name, part, clocks: clock.saturating_sub(before) });
            before = before.max(clock);
        }
        Ok(Latency { message_bytes: message, inline, stages })
    }
}
