//! Writes the payload of accepted packets to host memory and discards that of others.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `action` | sink | what to do with each packet, in order |
//! | `line` | sink | the packets' payload lines, in order |
//! | `req` | source | write requests |
//! | `out` | source | their lines, in order |
//! | `done` | in | pulse: the host has taken the oldest write request not yet done |
//! | `finished` | out | actions finished since reset, modulo 2^16 |
//!
//! Latency: one clock from an action to its write request; that of [`Shifter`] from a line to a line.
//! Throughput: a line every clock, an action every clock; a packet that takes no more lines in memory
//! than in its frame costs no clock more. At most 256 actions are under way; then `action.ready` is low.
//!
//! Actions count as finished in order, a discard or an empty packet too: once `finished` has come to
//! some action's number, everything before it is done.

use rust_hdl::prelude::*;

use super::RxAction;
use crate::bus::{Line, StreamSink, StreamSource, WriteReq};
use crate::prim::{Fifo, Shifter};

/// Where the lines of a packet go.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct LinePlan {
    write: Bit,
    lines: Bits<7>,
}

/// Payload to host memory.
#[derive(LogicBlock)]
pub struct Scatter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub action: StreamSink<RxAction>,
    pub line: StreamSink<Line>,
    pub req: StreamSource<WriteReq>,
    pub out: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub finished: Signal<Out, Bits<16>>,

    shifter: Shifter,
    reqs: Fifo<WriteReq, 2, 3>,
    plans: Fifo<LinePlan, 3, 4>,
    // Whether each action under way waits for the host.
    order: Fifo<Bit, 8, 9>,
    has_payload: Signal<Local, Bit>,
    addr: Signal<Local, Bits<64>>,
    wide_offset: Signal<Local, Bits<13>>,
    reach: Signal<Local, Bits<13>>,
    end_round: Signal<Local, Bits<13>>,
    accepts: Signal<Local, Bit>,
    index: DFF<Bits<7>>,
    next_index: Signal<Local, Bits<7>>,
    passes: Signal<Local, Bit>,
    // Writes that the host has taken and that `order` has not come to.
    done_count: DFF<Bits<9>>,
    waits_write: Signal<Local, Bit>,
    finishes: Signal<Local, Bit>,
    uses_done: Signal<Local, Bit>,
    finished_count: DFF<Bits<16>>,
    round_up: Constant<Bits<13>>,
}

impl Default for Scatter {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            action: Default::default(),
            line: Default::default(),
            req: Default::default(),
            out: Default::default(),
            done: Default::default(),
            finished: Default::default(),
            shifter: Default::default(),
            reqs: Default::default(),
            plans: Default::default(),
            order: Default::default(),
            has_payload: Default::default(),
            addr: Default::default(),
            wide_offset: Default::default(),
            reach: Default::default(),
            end_round: Default::default(),
            accepts: Default::default(),
            index: Default::default(),
            next_index: Default::default(),
            passes: Default::default(),
            done_count: Default::default(),
            waits_write: Default::default(),
            finishes: Default::default(),
            uses_done: Default::default(),
            finished_count: Default::default(),
            round_up: Constant::new(63u64.to_bits()),
        }
    }
}

impl Logic for Scatter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, index, done_count, finished_count);
        clock!(self, clock, shifter, reqs, plans, order);
        self.shifter.reset.next = self.reset.val();
        self.reqs.reset.next = self.reset.val();
        self.plans.reset.next = self.reset.val();
        self.order.reset.next = self.reset.val();

        // An action is taken when everything that it may need has room.
        self.action.ready.next =
            self.shifter.job.ready.val() & self.reqs.fill.ready.val() & self.plans.fill.ready.val() & self.order.fill.ready.val();
        self.accepts.next = self.action.valid.val()
            & self.shifter.job.ready.val()
            & self.reqs.fill.ready.val()
            & self.plans.fill.ready.val()
            & self.order.fill.ready.val();
        self.has_payload.next = self.action.data.val().len != 0;
        self.addr.next = self.action.data.val().addr;
        self.wide_offset.next = bit_cast::<13, 6>(self.action.data.val().offset);
        self.reach.next = self.wide_offset.val() + self.action.data.val().len;
        self.end_round.next = self.reach.val() + self.round_up.val();
        self.shifter.job.valid.next = self.accepts.val() & self.action.data.val().write;
        self.shifter.job.data.next.from = self.action.data.val().offset;
        self.shifter.job.data.next.to = self.addr.val().get_bits::<6>(0);
        self.shifter.job.data.next.len = self.action.data.val().len;
        self.reqs.fill.valid.next = self.accepts.val() & self.action.data.val().write;
        self.reqs.fill.data.next.addr = self.addr.val();
        self.reqs.fill.data.next.len = self.action.data.val().len;
        self.plans.fill.valid.next = self.accepts.val() & self.has_payload.val();
        self.plans.fill.data.next.write = self.action.data.val().write;
        self.plans.fill.data.next.lines = self.end_round.val().get_bits::<7>(6);
        self.order.fill.valid.next = self.accepts.val();
        self.order.fill.data.next = self.action.data.val().write;

        // Lines into the shifter or nowhere.
        self.line.ready.next = self.plans.drain.valid.val() & (!self.plans.drain.data.val().write | self.shifter.fill.ready.val());
        self.passes.next =
            self.line.valid.val() & self.plans.drain.valid.val() & (!self.plans.drain.data.val().write | self.shifter.fill.ready.val());
        self.shifter.fill.valid.next = self.line.valid.val() & self.plans.drain.valid.val() & self.plans.drain.data.val().write;
        self.shifter.fill.data.next = self.line.data.val();
        self.next_index.next = self.index.q.val() + 1;
        self.plans.drain.ready.next = false;
        if self.passes.val() {
            self.index.d.next = self.next_index.val();
            if self.next_index.val() == self.plans.drain.data.val().lines {
                self.index.d.next = 0.into();
                self.plans.drain.ready.next = true;
            }
        }

        self.req.data.next = self.reqs.drain.data.val();
        self.req.valid.next = self.reqs.drain.valid.val();
        self.reqs.drain.ready.next = self.req.ready.val();
        self.out.data.next = self.shifter.drain.data.val();
        self.out.valid.next = self.shifter.drain.valid.val();
        self.shifter.drain.ready.next = self.out.ready.val();

        // The oldest action finishes: at once, or with a write done.
        self.waits_write.next = self.order.drain.data.val();
        self.finishes.next = self.order.drain.valid.val() & (!self.waits_write.val() | (self.done_count.q.val() != 0));
        self.uses_done.next = self.finishes.val() & self.waits_write.val();
        self.order.drain.ready.next = self.finishes.val();
        if self.done.val() & !self.uses_done.val() {
            self.done_count.d.next = self.done_count.q.val() + 1;
        }
        if !self.done.val() & self.uses_done.val() {
            self.done_count.d.next = self.done_count.q.val() - 1;
        }
        if self.finishes.val() {
            self.finished_count.d.next = self.finished_count.q.val() + 1;
        }
        self.finished.next = self.finished_count.q.val();

        if self.reset.val() {
            self.index.d.next = 0.into();
            self.done_count.d.next = 0.into();
            self.finished_count.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// A packet, and where its payload must be found.
    struct Packet {
        action: RxAction,
        addr: u64,
        lines: Vec<Line>,
        payload: Vec<u8>,
    }

    fn packet(random: &mut Stalls, write: bool, offset: usize, addr: u64, len: usize) -> Packet {
        let payload: Vec<u8> = (0..len).map(|_| random.random() as u8).collect();
        let lines = if len == 0 { 0 } else { (offset + len).div_ceil(64) };
        let mut bytes: Vec<u8> = (0..64 * lines).map(|_| random.random() as u8).collect();
        if len > 0 {
            bytes[offset..offset + len].copy_from_slice(&payload);
        }
        let lines = bytes.chunks(64).enumerate().map(|(i, chunk)| Line { data: pack(chunk), last: i + 1 == lines }).collect();
        let action = RxAction { write: write && len > 0, addr: addr.to_bits(), len: len.to_bits(), offset: offset.to_bits() };
        Packet { action, addr, lines, payload }
    }

    const CANARY: u8 = 0xA5;

    struct Outcome {
        clocks: u64,
        finished: Vec<(u64, u64)>,
    }

    /// Runs the packets, writes as a host would, with `delay` clocks from a write's last line to its
    /// `done`, and looks at all of memory in the end.
    fn run(bench: &mut Bench<Scatter>, packets: &[Packet], delay: u64, mut stalls: impl FnMut() -> Stalls) -> Outcome {
        let mut memory = vec![CANARY; 1 << 16];
        let mut expected = memory.clone();
        let mut actions = Driver::new(packets.iter().map(|packet| packet.action), stalls());
        let mut lines = Driver::new(packets.iter().flat_map(|packet| packet.lines.clone()), stalls());
        let mut reqs = Monitor::new(stalls());
        let mut out = Monitor::new(stalls());
        let writes: Vec<&Packet> = packets.iter().filter(|packet| packet.action.write).collect();
        for packet in &writes {
            let addr = packet.addr as usize;
            expected[addr..addr + packet.payload.len()].copy_from_slice(&packet.payload);
        }
        let begin = bench.clock_count();
        let mut due = VecDeque::new();
        let (mut written, mut first_line) = (0, 0);
        let mut finished = vec![];
        let mut dones = 0;
        let mut clocks = 0;
        loop {
            let clock = bench.clock_count() - begin;
            actions.before(&mut bench.uut.action);
            lines.before(&mut bench.uut.line);
            reqs.before(&mut bench.uut.req);
            out.before(&mut bench.uut.out);
            let is_done = due.front().is_some_and(|time| *time <= clock);
            bench.uut.done.next = is_done;
            if is_done {
                due.pop_front();
                dones += 1;
            }
            bench.settle();
            actions.after(&bench.uut.action);
            lines.after(&bench.uut.line);
            reqs.after(&bench.uut.req);
            out.after(&bench.uut.out);
            let count = (0..16).fold(0u64, |value, bit| value | (bench.uut.finished.val().get_bit(bit) as u64) << bit);
            finished.push((count, dones));
            // A write is complete when its request and all of its lines are there.
            while written < writes.len() && reqs.got.len() > written {
                let packet = writes[written];
                let to = packet.addr as usize % 64;
                let count = (to + packet.payload.len()).div_ceil(64);
                if out.got.len() < first_line + count {
                    break;
                }
                assert_eq!(reqs.got[written], WriteReq { addr: packet.action.addr, len: packet.action.len });
                for i in 0..count {
                    assert_eq!(out.got[first_line + i].last, i + 1 == count, "line {i} of write {written}");
                    // What the engine would write: the bytes of the range.
                    for (j, byte) in unpack(out.got[first_line + i].data).into_iter().enumerate() {
                        let position = 64 * i + j;
                        if (to..to + packet.payload.len()).contains(&position) {
                            memory[packet.addr as usize - to + position] = byte;
                        } else {
                            assert_eq!(byte, 0, "a byte outside the payload");
                        }
                    }
                }
                first_line += count;
                written += 1;
                clocks = clock + 1;
                due.push_back(clock + delay);
            }
            bench.edge();
            if count == packets.len() as u64 {
                break;
            }
            assert!(clock < 20_000, "scatter hangs");
        }
        assert!(actions.is_done() && lines.is_done() && out.got.len() == first_line && written == writes.len());
        assert!(memory == expected, "memory differs");
        Outcome { clocks, finished }
    }

    fn bench(name: &str) -> Bench<Scatter> {
        Bench::new(name, Scatter::default(), |uut| &mut uut.clock)
    }

    /// Packets one behind the other in memory, with gaps.
    fn packets(random: &mut Stalls, count: usize, mut alignment: impl FnMut(usize) -> (usize, usize, usize)) -> Vec<Packet> {
        let mut addr = 0x100;
        (0..count)
            .map(|i| {
                let (offset, to, len) = alignment(i);
                addr = (addr + 127) / 64 * 64 + to as u64;
                let write = random.random() % 4 != 0;
                let packet = packet(random, write, offset, addr, len);
                addr += len as u64;
                packet
            })
            .collect()
    }

    #[test]
    fn payload_of_any_alignment_is_written_or_discarded_and_nothing_else_is_touched() {
        let mut random = Stalls::new(41);
        let mut sizes = Stalls::new(42);
        // Steps of 37 and 11 through 64 by 64 alignments.
        let packets = packets(&mut random, 140, |i| {
            let len = match sizes.random() % 8 {
                0 => 0,
                1 => 1,
                2 => 64,
                _ => sizes.random() as usize % 260,
            };
            (37 * i % 64, (11 * i + i / 64) % 64, len)
        });
        let mut seed = 500;
        let mut bench = bench("scatter");
        run(&mut bench, &packets, 9, || {
            seed += 1;
            Stalls::new(seed)
        });
        bench.finish();
    }

    #[test]
    fn a_line_goes_through_every_clock() {
        let mut random = Stalls::new(43);
        let packets: Vec<Packet> = (0..40).map(|i| packet(&mut random, true, 54, 0x1000 + 256 * i, 256)).collect();
        let mut bench = bench("scatter_rate");
        let outcome = run(&mut bench, &packets, 1, Stalls::none);
        // Five lines each in the frames.
        assert!(outcome.clocks <= 5 * 40 + 12, "{} clocks", outcome.clocks);
        bench.finish();
    }

    #[test]
    fn a_discard_behind_a_write_finishes_after_it() {
        let mut random = Stalls::new(44);
        let packets = [packet(&mut random, true, 3, 0x777, 100), packet(&mut random, false, 3, 0, 10), packet(&mut random, false, 0, 0, 0)];
        let mut bench = bench("scatter_order");
        let outcome = run(&mut bench, &packets, 60, Stalls::none);
        assert!(outcome.finished.iter().all(|(finished, dones)| *dones == 1 || *finished == 0));
        bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_leaves_nothing_behind() {
        let mut random = Stalls::new(45);
        let mut bench = bench("scatter_reset");
        let begun = packet(&mut random, true, 5, 0x1234, 200);
        bench.uut.action.data.next = begun.action;
        bench.uut.action.valid.next = true;
        bench.uut.line.data.next = begun.lines[0];
        bench.uut.line.valid.next = true;
        bench.cycles(4);
        bench.uut.action.valid.next = false;
        bench.uut.line.valid.next = false;
        bench.uut.reset.next = true;
        bench.edge();
        bench.uut.reset.next = false;
        let after = [packet(&mut random, true, 50, 0x2001, 100), packet(&mut random, true, 1, 0x3000, 63)];
        run(&mut bench, &after, 5, Stalls::none);
        bench.finish();
    }
}
