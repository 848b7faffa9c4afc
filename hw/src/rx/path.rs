//! The receive path behind the front: responder, scatter and acknowledgement gate.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `head`, `line` | sinks | accepted frames, and their payload lines |
//! | `qp_write`, `mr_write` | in | broadcasts to the tables |
//! | `req`, `out`, `done` | sources, in | writes to host memory, see [`Scatter`] |
//! | `ack` | source | acknowledgements and NAKs to send |
//! | `ack_in` | source | acknowledgements for the requester |
//! | `event_out` | source | a QP has refused a request and is dead |
//! | `entered`, `finished` | out | see [`Responder`] |
//! | `count_*`, `query_*` | | see [`Responder`] |
//! | `ready` | out | low while tables are cleared after a reset |

use rust_hdl::prelude::*;

use super::{AckGate, Responder, Scatter};
use crate::bus::{AckIn, AckReq, EventReq, Line, MrWrite, QpWrite, RxHead, StreamSink, StreamSource, WriteReq};

/// Responder, scatter and acknowledgement gate.
#[derive(LogicBlock, Default)]
pub struct RxPath {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub head: StreamSink<RxHead>,
    pub line: StreamSink<Line>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    pub req: StreamSource<WriteReq>,
    pub out: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub ack: StreamSource<AckReq>,
    pub ack_in: StreamSource<AckIn>,
    pub event_out: StreamSource<EventReq>,
    pub entered: Signal<Out, Bits<16>>,
    pub finished: Signal<Out, Bits<16>>,
    pub count_requests: Signal<Out, Bit>,
    pub count_duplicates: Signal<Out, Bit>,
    pub count_out_of_order: Signal<Out, Bit>,
    pub count_no_qp: Signal<Out, Bit>,
    pub count_not_executed: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Bits<8>>,
    pub query_expected_psn: Signal<Out, Bits<24>>,
    pub query_msn: Signal<Out, Bits<24>>,
    pub query_dead: Signal<Out, Bit>,

    responder: Responder,
    scatter: Scatter,
    gate: AckGate,
}

impl Logic for RxPath {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, responder, scatter, gate);
        self.responder.reset.next = self.reset.val();
        self.scatter.reset.next = self.reset.val();
        self.gate.reset.next = self.reset.val();
        self.ready.next = self.responder.ready.val() & self.gate.ready.val();

        self.responder.head.data.next = self.head.data.val();
        self.responder.head.valid.next = self.head.valid.val();
        self.head.ready.next = self.responder.head.ready.val();
        self.responder.qp_write.next = self.qp_write.val();
        self.responder.mr_write.next = self.mr_write.val();
        self.scatter.action.data.next = self.responder.action.data.val();
        self.scatter.action.valid.next = self.responder.action.valid.val();
        self.responder.action.ready.next = self.scatter.action.ready.val();
        self.gate.record.data.next = self.responder.ack.data.val();
        self.gate.record.valid.next = self.responder.ack.valid.val();
        self.responder.ack.ready.next = self.gate.record.ready.val();

        self.scatter.line.data.next = self.line.data.val();
        self.scatter.line.valid.next = self.line.valid.val();
        self.line.ready.next = self.scatter.line.ready.val();
        self.req.data.next = self.scatter.req.data.val();
        self.req.valid.next = self.scatter.req.valid.val();
        self.scatter.req.ready.next = self.req.ready.val();
        self.out.data.next = self.scatter.out.data.val();
        self.out.valid.next = self.scatter.out.valid.val();
        self.scatter.out.ready.next = self.out.ready.val();
        self.scatter.done.next = self.done.val();
        self.gate.done.next = self.done.val();

        self.ack.data.next = self.gate.ack.data.val();
        self.ack.valid.next = self.gate.ack.valid.val();
        self.gate.ack.ready.next = self.ack.ready.val();
        self.ack_in.data.next = self.responder.ack_in.data.val();
        self.ack_in.valid.next = self.responder.ack_in.valid.val();
        self.responder.ack_in.ready.next = self.ack_in.ready.val();
        self.event_out.data.next = self.responder.event_out.data.val();
        self.event_out.valid.next = self.responder.event_out.valid.val();
        self.responder.event_out.ready.next = self.event_out.ready.val();

        self.entered.next = self.responder.entered.val();
        self.finished.next = self.scatter.finished.val();
        self.count_requests.next = self.responder.count_requests.val();
        self.count_duplicates.next = self.responder.count_duplicates.val();
        self.count_out_of_order.next = self.responder.count_out_of_order.val();
        self.count_no_qp.next = self.responder.count_no_qp.val();
        self.count_not_executed.next = self.responder.count_not_executed.val();
        self.responder.query_qpn.next = self.query_qpn.val();
        self.query_expected_psn.next = self.responder.query_expected_psn.val();
        self.query_msn.next = self.responder.query_msn.val();
        self.query_dead.next = self.responder.query_dead.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{MrEntry, QpContext};
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    const BASE: u64 = 0x4000;
    const DELTA: u64 = 0x1_0000_0040;

    fn number<const N: usize>(bits: Bits<N>) -> u64 {
        (0..N).fold(0, |value, bit| value | (bits.get_bit(bit) as u64) << bit)
    }

    struct Run {
        bench: Bench<RxPath>,
        answers: Vec<AckReq>,
        clocks: u64,
    }

    /// Sends messages at an MTU of 256 to one QP; each of `messages` is address and length. Looks at
    /// all of memory, at the order of writes and answers, and at the drain probe.
    fn run(name: &str, messages: &[(u64, usize)], mut stalls: impl FnMut() -> Stalls) -> Run {
        let mut bench = Bench::new(name, RxPath::default(), |uut| &mut uut.clock);
        while !bench.uut.ready.val() {
            bench.edge();
            assert!(bench.clock_count() < 1100, "ready does not come");
        }
        let context = QpContext {
            state: 3u64.to_bits(),
            access: 2u64.to_bits(),
            mtu: 1u64.to_bits(),
            pd: 5u64.to_bits(),
            remote_ip: pack(&[3; 16]),
            rq_psn: 0xFF_FFFEu64.to_bits(),
            ..Default::default()
        };
        bench.uut.qp_write.next = QpWrite { valid: true, qpn: 17u64.to_bits(), start_rx: true, context, ..Default::default() };
        let entry = MrEntry {
            valid: true,
            tag: 0xABu64.to_bits(),
            pd: 5u64.to_bits(),
            access: 3u64.to_bits(),
            base: BASE.to_bits(),
            len: 0x4000u64.to_bits(),
            delta: DELTA.to_bits(),
        };
        bench.uut.mr_write.next = MrWrite { valid: true, index: 700u64.to_bits(), entry };
        bench.edge();
        bench.uut.qp_write.next = QpWrite::default();
        bench.uut.mr_write.next = MrWrite::default();

        let mut random = Stalls::new(61);
        let mut memory = vec![0xA5u8; 0x4000];
        let mut expected = memory.clone();
        let (mut heads, mut lines, mut ends) = (vec![], vec![], vec![]);
        let mut psn = 0xFF_FFFEu64;
        for (va, len) in messages {
            let packets = len.div_ceil(256).max(1);
            for i in 0..packets {
                let bytes = (len - 256 * i).min(256);
                let opcode = [[0x07u64, 0x08], [0x06, 0x0A]][(i == 0) as usize][(i + 1 == packets) as usize];
                let offset = if i == 0 { 6 } else { 54 };
                let payload: Vec<u8> = (0..bytes).map(|_| random.random() as u8).collect();
                let at = (va - BASE) as usize + 256 * i;
                expected[at..at + bytes].copy_from_slice(&payload);
                let count = if bytes == 0 { 0 } else { (offset + bytes).div_ceil(64) };
                let mut frame: Vec<u8> = (0..64 * count).map(|_| random.random() as u8).collect();
                if bytes > 0 {
                    frame[offset..offset + bytes].copy_from_slice(&payload);
                }
                lines.extend(frame.chunks(64).enumerate().map(|(j, chunk)| Line { data: pack(chunk), last: j + 1 == count }));
                heads.push(RxHead {
                    opcode: opcode.to_bits(),
                    ack_req: i + 1 == packets,
                    pad: ((bytes as u64).wrapping_neg() & 3).to_bits(),
                    qpn: 17u64.to_bits(),
                    psn: psn.to_bits(),
                    va: va.to_bits(),
                    rkey: (700u64 << 8 | 0xAB).to_bits(),
                    dma_len: (*len as u64).to_bits(),
                    len: (bytes as u64).to_bits(),
                    offset: (offset as u64).to_bits(),
                    source_ip: pack(&[3; 16]),
                    ..Default::default()
                });
                psn = (psn + 1) & 0xFF_FFFF;
            }
            ends.push((psn.wrapping_sub(1)) & 0xFF_FFFF);
        }
        let total = heads.len() as u64;
        let mut heads = Driver::new(heads, stalls());
        let mut lines = Driver::new(lines, stalls());
        let mut reqs = Monitor::new(stalls());
        let mut out = Monitor::new(stalls());
        let mut acks = Monitor::new(stalls());
        let (mut written, mut first_line, mut dones) = (0, 0, 0);
        let mut host = Stalls::new(62);
        let begin = bench.clock_count();
        let mut idle = 0;
        let mut clocks = 0;
        while idle < 100 {
            heads.before(&mut bench.uut.head);
            lines.before(&mut bench.uut.line);
            reqs.before(&mut bench.uut.req);
            out.before(&mut bench.uut.out);
            acks.before(&mut bench.uut.ack);
            let is_done = dones < written && host.go();
            bench.uut.done.next = is_done;
            bench.settle();
            heads.after(&bench.uut.head);
            lines.after(&bench.uut.line);
            reqs.after(&bench.uut.req);
            out.after(&bench.uut.out);
            let got = acks.got.len();
            acks.after(&bench.uut.ack);
            assert!(acks.got.len() == got || dones > 0 || number(acks.got[0].psn) == 0xFF_FFFE, "an answer before any write is done");
            dones += is_done as usize;
            if let Some(req) = reqs.got.get(written) {
                let (addr, len) = (number(req.addr).wrapping_sub(DELTA + BASE) as usize, number(req.len) as usize);
                let count = (addr % 64 + len).div_ceil(64);
                if out.got.len() >= first_line + count {
                    let bytes: Vec<u8> = out.got[first_line..first_line + count].iter().flat_map(|line| unpack(line.data)).collect();
                    memory[addr..addr + len].copy_from_slice(&bytes[addr % 64..addr % 64 + len]);
                    first_line += count;
                    written += 1;
                    clocks = bench.clock_count() + 1 - begin;
                }
            }
            let is_idle = heads.is_done() && bench.uut.entered.val() == bench.uut.finished.val();
            idle = if is_idle { idle + 1 } else { 0 };
            bench.edge();
            assert!(bench.clock_count() < 20_000, "the path hangs");
        }
        assert!(lines.is_done());
        assert!(memory == expected, "memory differs");
        assert_eq!(number(bench.uut.finished.val()), total);
        assert_eq!(dones, reqs.got.len());
        let last = acks.got.last().expect("an answer");
        assert_eq!((number(last.psn), number(last.msn), number(last.syndrome)), (*ends.last().unwrap(), messages.len() as u64, 0x1F));
        Run { bench, answers: acks.got, clocks }
    }

    #[test]
    fn messages_of_all_sizes_come_to_memory_and_are_acknowledged() {
        let mut addr = BASE + 1;
        let messages: Vec<(u64, usize)> = [0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 513, 700, 3, 1024, 31, 0, 100]
            .into_iter()
            .map(|len| {
                let message = (addr, len);
                addr += len as u64 + 13;
                message
            })
            .collect();
        let mut seed = 700;
        let run = run("rx_path", &messages, || {
            seed += 1;
            Stalls::new(seed)
        });
        assert!(run.answers.len() <= messages.len());
        run.bench.finish();
    }

    #[test]
    fn a_message_of_64_bytes_takes_two_clocks() {
        let messages: Vec<(u64, usize)> = (0..120).map(|i| (BASE + 64 * i, 64)).collect();
        let run = run("rx_path_rate", &messages, Stalls::none);
        assert!(run.clocks <= 2 * 120 + 24, "{} clocks", run.clocks);
        run.bench.finish();
    }
}
