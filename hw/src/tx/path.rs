//! The transmit path, wired.
//!
//! Descriptors wait in a FIFO of 256 packets and payload in one of 512 lines, so that enough host
//! reads are under way at a latency of a microsecond. Everything before them works ahead; what
//! waits behind them is complete, or its last line is in the rotation. Inline data goes straight from `Decode` to `Gather`, through a FIFO
//! of 512 lines, since its part of a packet may wait there behind others that are read from memory.

use rust_hdl::prelude::*;

use super::{Choose, Decode, Gather, Headers, Icrc, KeyCheck, Merge, Scheduler, Segment};
use crate::bus::*;
use crate::prim::{DeepFifo, Fifo};

/// One bit for each stream inside the path that is a stage, in the order of [`verbena_abi::stages::Stage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TxStages {
    pub items: Bit,
    pub request_heads: Bit,
    pub packet_descs: Bit,
    pub gather_parts: Bit,
    pub gathered_lines: Bit,
    pub packets: Bit,
    pub headers: Bit,
    pub merge_lines: Bit,
    pub frame_beats: Bit,
}

#[derive(LogicBlock, Default)]
pub struct TxPath {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    pub mac: Signal<In, Bits<48>>,
    pub ipv4: Signal<In, Bits<32>>,
    pub ipv6: Signal<In, Bits<128>>,
    pub bell: StreamSink<SqBell>,
    pub halt: StreamSink<Qpn>,
    pub restart: StreamSink<Restart>,
    pub retired: Signal<In, Retired>,
    pub asked: Signal<Out, Asked>,
    pub ack: StreamSink<AckReq>,
    pub issue: StreamSource<Issue>,
    pub fetch_req: StreamSource<ReadReq>,
    pub fetch_line: StreamSink<Line>,
    pub payload_req: StreamSource<ReadReq>,
    pub payload_line: StreamSink<Line>,
    pub beat: StreamSource<Beat>,
    pub entered: Signal<Out, Bits<16>>,
    pub finished: Signal<Out, Bits<16>>,
    pub bad_bell: Signal<Out, Bit>,
    pub fetched: Signal<Out, Bit>,
    pub refused: Signal<Out, Bit>,
    pub sent: Signal<Out, Bit>,
    pub sent_ack: Signal<Out, Bit>,
    pub sent_nak: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_producer: Signal<Out, Bits<16>>,
    pub query_fetched: Signal<Out, Bits<16>>,
    pub query_next_psn: Signal<Out, Bits<24>>,
    pub stage_valid: Signal<Out, TxStages>,
    pub stage_ready: Signal<Out, TxStages>,

    scheduler: Scheduler,
    decode: Decode,
    key_check: KeyCheck,
    segment: Segment,
    descs: DeepFifo<PacketDesc, 8, 9>,
    inline: DeepFifo<Bits<512>, 9, 10>,
    gather: Gather,
    payload: DeepFifo<Line, 9, 10>,
    choose: Choose,
    headers: Headers,
    merge: Merge,
    icrc: Icrc,
    // Each failed queue pair is told to both who keep a state for it.
    halt_scheduler: Fifo<Qpn, 1, 2>,
    halt_segment: Fifo<Qpn, 1, 2>,
    both_take: Signal<Local, Bit>,
    item: Signal<Local, SgeItem>,
    is_fetched: DFF<Bit>,
}

impl Logic for TxPath {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_fetched);
        clock!(self, clock, scheduler, decode, key_check, segment, descs, inline, gather, payload, choose, headers, merge, icrc);
        clock!(self, clock, halt_scheduler, halt_segment);
        self.scheduler.reset.next = self.reset.val();
        self.decode.reset.next = self.reset.val();
        self.key_check.reset.next = self.reset.val();
        self.segment.reset.next = self.reset.val();
        self.descs.reset.next = self.reset.val();
        self.inline.reset.next = self.reset.val();
        self.gather.reset.next = self.reset.val();
        self.payload.reset.next = self.reset.val();
        self.choose.reset.next = self.reset.val();
        self.headers.reset.next = self.reset.val();
        self.merge.reset.next = self.reset.val();
        self.icrc.reset.next = self.reset.val();
        self.halt_scheduler.reset.next = self.reset.val();
        self.halt_segment.reset.next = self.reset.val();

        self.scheduler.qp_write.next = self.qp_write.val();
        self.key_check.qp_write.next = self.qp_write.val();
        self.segment.qp_write.next = self.qp_write.val();
        self.headers.qp_write.next = self.qp_write.val();
        self.key_check.mr_write.next = self.mr_write.val();
        self.headers.mac.next = self.mac.val();
        self.headers.ipv4.next = self.ipv4.val();
        self.headers.ipv6.next = self.ipv6.val();

        self.both_take.next = self.halt_scheduler.fill.ready.val() & self.halt_segment.fill.ready.val();
        self.halt.ready.next = self.both_take.val();
        self.halt_scheduler.fill.valid.next = self.halt.valid.val() & self.both_take.val();
        self.halt_segment.fill.valid.next = self.halt.valid.val() & self.both_take.val();
        self.halt_scheduler.fill.data.next = self.halt.data.val();
        self.halt_segment.fill.data.next = self.halt.data.val();
        StreamSource::<Qpn>::join(&mut self.halt_scheduler.drain, &mut self.scheduler.halt);
        StreamSource::<Qpn>::join(&mut self.halt_segment.drain, &mut self.segment.halt);

        StreamSink::<SqBell>::link(&mut self.bell, &mut self.scheduler.bell);
        StreamSource::<ReadReq>::link(&mut self.fetch_req, &mut self.scheduler.read);
        StreamSource::<Fetch>::join(&mut self.scheduler.fetch, &mut self.decode.fetch);
        StreamSink::<Line>::link(&mut self.fetch_line, &mut self.decode.line);
        StreamSource::<SgeItem>::join(&mut self.decode.item, &mut self.key_check.item);
        StreamSource::<Bits<512>>::join(&mut self.decode.inline, &mut self.inline.fill);
        StreamSource::<Bits<512>>::join(&mut self.inline.drain, &mut self.gather.inline);
        StreamSource::<Piece>::join(&mut self.key_check.piece, &mut self.segment.piece);
        StreamSource::<WqeHead>::join(&mut self.key_check.head, &mut self.segment.head);
        StreamSource::<Issue>::link(&mut self.issue, &mut self.segment.issue);
        StreamSink::<Restart>::link(&mut self.restart, &mut self.segment.restart);
        self.segment.retired.next = self.retired.val();
        self.asked.next = self.segment.asked.val();
        StreamSource::<Rewind>::join(&mut self.segment.rewind, &mut self.scheduler.rewind);
        self.scheduler.begun.next = self.segment.begun.val();
        self.scheduler.sending_qpn.next = self.segment.sending_qpn.val();
        self.segment.others_wait.next = self.scheduler.others_wait.val();
        StreamSource::<PacketDesc>::join(&mut self.segment.desc, &mut self.descs.fill);
        StreamSource::<GatherReq>::join(&mut self.segment.gather, &mut self.gather.part);
        StreamSource::<ReadReq>::link(&mut self.payload_req, &mut self.gather.read);
        StreamSink::<Line>::link(&mut self.payload_line, &mut self.gather.line_in);
        // A packet's headers may begin when its last line is on its way: the line is in the FIFO before they are finished,
        // and lines leave the gatherer as fast as the merger takes them, so no frame ever has a gap.
        StreamSource::<Line>::join(&mut self.gather.line, &mut self.payload.fill);
        self.choose.payload_entered.next = self.gather.announces.val();
        StreamSource::<PacketDesc>::join(&mut self.descs.drain, &mut self.choose.desc);
        StreamSink::<AckReq>::link(&mut self.ack, &mut self.choose.ack);
        StreamSource::<PacketDesc>::join(&mut self.choose.packet, &mut self.headers.packet);
        StreamSource::<Header>::join(&mut self.headers.header, &mut self.merge.header);
        StreamSource::<Line>::join(&mut self.payload.drain, &mut self.merge.line);
        StreamSource::<FrameBeat>::join(&mut self.merge.beat, &mut self.icrc.beat_in);
        StreamSource::<Beat>::link(&mut self.beat, &mut self.icrc.beat);

        self.entered.next = self.scheduler.entered.val();
        self.finished.next = self.choose.finished.val();
        self.bad_bell.next = self.scheduler.bad_bell.val();
        self.item.next = self.decode.item.data.val();
        self.is_fetched.d.next = self.decode.item.valid.val() & self.key_check.item.ready.val() & self.item.val().last;
        self.fetched.next = self.is_fetched.q.val();
        self.refused.next = self.segment.refused.val();
        self.sent.next = self.choose.sent.val();
        self.sent_ack.next = self.choose.sent_ack.val();
        self.sent_nak.next = self.choose.sent_nak.val();
        self.scheduler.query_qpn.next = self.query_qpn.val();
        self.segment.query_qpn.next = self.query_qpn.val();
        self.query_producer.next = self.scheduler.query_producer.val();
        self.query_fetched.next = self.scheduler.query_fetched.val();
        self.query_next_psn.next = self.segment.query_next_psn.val();

        self.stage_valid.next.items = self.decode.item.valid.val();
        self.stage_valid.next.request_heads = self.key_check.head.valid.val();
        self.stage_valid.next.packet_descs = self.segment.desc.valid.val();
        self.stage_valid.next.gather_parts = self.segment.gather.valid.val();
        self.stage_valid.next.gathered_lines = self.gather.line.valid.val();
        self.stage_valid.next.packets = self.choose.packet.valid.val();
        self.stage_valid.next.headers = self.headers.header.valid.val();
        self.stage_valid.next.merge_lines = self.payload.drain.valid.val();
        self.stage_valid.next.frame_beats = self.merge.beat.valid.val();
        self.stage_ready.next.items = self.key_check.item.ready.val();
        self.stage_ready.next.request_heads = self.segment.head.ready.val();
        self.stage_ready.next.packet_descs = self.descs.fill.ready.val();
        self.stage_ready.next.gather_parts = self.gather.part.ready.val();
        self.stage_ready.next.gathered_lines = self.payload.fill.ready.val();
        self.stage_ready.next.packets = self.headers.packet.ready.val();
        self.stage_ready.next.headers = self.merge.header.ready.val();
        self.stage_ready.next.merge_lines = self.merge.line.ready.val();
        self.stage_ready.next.frame_beats = self.icrc.beat_in.ready.val();
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::prim::{crc32_step, pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use verbena_abi::arith::packets;
    use verbena_abi::queue::{access, qp_flags, wqe_flags, QpState};
    use verbena_abi::wire;

    const MEMORY: usize = 1 << 18;
    const SQ: u64 = 0x4000;
    const QPN: u64 = 5;

    /// Host memory with a read port: answers in order, some clocks late.
    struct Host {
        memory: Vec<u8>,
        driver: Driver<Line>,
        requests: Monitor<ReadReq>,
        served: usize,
    }

    impl Host {
        fn new(seed: u64, stall: bool) -> Self {
            let mut random = Stalls::new(seed);
            let stalls = |n| if stall { Stalls::new(seed + n) } else { Stalls::none() };
            Self {
                memory: (0..MEMORY).map(|_| random.random() as u8).collect(),
                driver: Driver::new([], stalls(1)),
                requests: Monitor::new(stalls(2)),
                served: 0,
            }
        }

        fn before(&mut self, req: &mut StreamSource<ReadReq>, line: &mut StreamSink<Line>) {
            self.requests.before(req);
            self.driver.before(line);
        }

        fn after(&mut self, memory: &[u8], req: &StreamSource<ReadReq>, line: &StreamSink<Line>) {
            self.requests.after(req);
            self.driver.after(line);
            for req in &self.requests.got[self.served..] {
                let (addr, len) = (req.addr.to_u64() as usize, req.len.to_u64() as usize);
                assert!(len > 0 && len <= 4096);
                let (first, last) = (addr / 64, (addr + len - 1) / 64);
                for line in first..=last {
                    self.driver.queue.push_back(Line { data: pack(&memory[64 * line..64 * line + 64]), last: line == last });
                }
            }
            self.served = self.requests.got.len();
        }
    }

    #[derive(Default)]
    struct Request {
        sges: Vec<(u64, u32, u32)>,
        /// Inline data, instead of entries.
        inline: Vec<u8>,
        va: u64,
        rkey: u32,
    }

    fn wqe(request: &Request, two_units: bool) -> Vec<u8> {
        let mut bytes = vec![1, wqe_flags::SIGNALED, request.sges.len() as u8, request.inline.len() as u8, 0, 0, 0, 0];
        bytes.extend(request.va.to_le_bytes());
        bytes.extend(request.rkey.to_le_bytes());
        bytes.extend([0; 12]);
        for (va, len, lkey) in &request.sges {
            bytes.extend(va.to_le_bytes());
            bytes.extend(len.to_le_bytes());
            bytes.extend(lkey.to_le_bytes());
        }
        bytes.extend(&request.inline);
        // What is behind does not count.
        bytes.resize(if two_units { 128 } else { 64 }, 0xEE);
        bytes
    }

    fn context(flags: u8, mtu: u64) -> QpWrite {
        let mut remote_ip = [0u8; 16];
        remote_ip[12..].copy_from_slice(&[10, 0, 0, 2]);
        if flags & qp_flags::IPV6 != 0 {
            remote_ip = core::array::from_fn(|i| 0x20 + i as u8);
        }
        QpWrite {
            valid: true,
            qpn: QPN.into(),
            start_tx: true,
            context: QpContext {
                state: (QpState::Rts as u64).into(),
                flags: u64::from(flags).into(),
                access: 0u64.into(),
                mtu: mtu.into(),
                pd: 7u64.into(),
                ttl: 64u64.into(),
                traffic_class: 0x68u64.into(),
                remote_qpn: 0x112233u64.into(),
                sq_psn: 0xFF_FFFEu64.into(),
                source_port: 0xC123u64.into(),
                vlan_tci: 0x6064u64.into(),
                remote_mac: pack(&[2, 0, 0, 0, 0, 9]),
                pkey: 0xFFFFu64.into(),
                remote_ip: pack(&remote_ip),
                sq_address: SQ.into(),
                sq_log_depth: 4u64.into(),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn open(name: &str) -> Bench<TxPath> {
        let mut bench = Bench::new(name, TxPath::default(), |uut| &mut uut.clock);
        bench.uut.mac.next = pack(&[2, 0, 0, 0, 0, 1]);
        bench.uut.ipv4.next = pack(&[10, 0, 0, 1]);
        bench.uut.ipv6.next = pack(&core::array::from_fn::<u8, 16, _>(|i| 0x40 + i as u8));
        bench
    }

    /// Gives a reset, waits until states are cleared, and sees that nothing comes out. The reset takes two clocks,
    /// since pulses of what was taken in its first clock come in the second.
    fn reset(bench: &mut Bench<TxPath>) {
        bench.uut.reset.next = true;
        bench.cycles(1);
        let uut = &mut bench.uut;
        (uut.bell.valid.next, uut.halt.valid.next, uut.ack.valid.next) = (false, false, false);
        (uut.fetch_line.valid.next, uut.payload_line.valid.next) = (false, false);
        (uut.fetch_req.ready.next, uut.payload_req.ready.next, uut.issue.ready.next, uut.beat.ready.next) = (true, true, true, true);
        bench.cycles(1);
        bench.uut.reset.next = false;
        for _ in 0..(1 << verbena_abi::limits::LOG_QPS) + 4 {
            bench.settle();
            let uut = &bench.uut;
            assert!(!uut.fetch_req.valid.val() && !uut.payload_req.valid.val() && !uut.issue.valid.val() && !uut.beat.valid.val());
            assert!(!uut.fetched.val() && !uut.refused.val() && !uut.sent.val() && !uut.sent_ack.val() && !uut.sent_nak.val());
            assert!(uut.entered.val() == 0u64 && uut.finished.val() == 0u64 && !uut.bad_bell.val());
            bench.edge();
        }
    }

    /// One queue pair and one region.
    fn set_up(bench: &mut Bench<TxPath>, flags: u8, mtu: u64) {
        bench.uut.qp_write.next = context(flags, mtu);
        bench.uut.mr_write.next = MrWrite {
            valid: true,
            index: 3u64.into(),
            entry: MrEntry {
                valid: true,
                tag: 0xA5u64.into(),
                pd: 7u64.into(),
                access: u64::from(access::LOCAL_WRITE).into(),
                base: 0x10_0000u64.into(),
                len: 0x2_0000u64.into(),
                delta: 0xFFFF_FFFF_FFF1_0000u64.into(),
            },
        };
        bench.cycles(1);
        bench.uut.qp_write.next = QpWrite::default();
        bench.uut.mr_write.next = MrWrite::default();
        bench.cycles(4);
    }

    /// What stands on the path's streams.
    struct Card {
        memory: Vec<u8>,
        fetch: Host,
        payload: Host,
        bell: Driver<SqBell>,
        beats: Monitor<Beat>,
        issues: Monitor<Issue>,
    }

    impl Card {
        /// Writes `requests` into the send queue, and rings for them with the first clock.
        fn new(flags: u8, requests: &[Request], seed: u64, stall: bool) -> Self {
            let stalls = |n| if stall { Stalls::new(seed + n) } else { Stalls::none() };
            let mut fetch = Host::new(seed, stall);
            let mut memory = std::mem::take(&mut fetch.memory);
            let unit = if flags & qp_flags::TWO_UNITS != 0 { 128 } else { 64 };
            for (i, request) in requests.iter().enumerate() {
                let at = SQ as usize + i * unit;
                memory[at..at + unit].copy_from_slice(&wqe(request, unit == 128));
            }
            Self {
                memory,
                fetch,
                payload: Host::new(seed + 10, stall),
                bell: Driver::new([SqBell { qpn: QPN.into(), index: (requests.len() as u64).into() }], stalls(20)),
                beats: Monitor::new(stalls(21)),
                issues: Monitor::new(stalls(22)),
            }
        }

        fn clock(&mut self, bench: &mut Bench<TxPath>, is_shut: bool) {
            self.bell.before(&mut bench.uut.bell);
            self.fetch.before(&mut bench.uut.fetch_req, &mut bench.uut.fetch_line);
            self.payload.before(&mut bench.uut.payload_req, &mut bench.uut.payload_line);
            self.beats.before(&mut bench.uut.beat);
            self.issues.before(&mut bench.uut.issue);
            if is_shut {
                bench.uut.beat.ready.next = false;
                bench.uut.issue.ready.next = false;
            }
            bench.settle();
            self.bell.after(&bench.uut.bell);
            self.fetch.after(&self.memory, &bench.uut.fetch_req, &bench.uut.fetch_line);
            self.payload.after(&self.memory, &bench.uut.payload_req, &bench.uut.payload_line);
            self.beats.after(&bench.uut.beat);
            self.issues.after(&bench.uut.issue);
            bench.edge();
        }
    }

    /// Posts `requests` on one queue pair and returns the frames.
    fn run(name: &str, flags: u8, mtu: u64, requests: &[Request], seed: u64, stall: bool) -> (Vec<u8>, Vec<Vec<u8>>, Vec<Issue>, u64) {
        let mut bench = open(name);
        reset(&mut bench);
        post(bench, flags, mtu, requests, seed, stall)
    }

    fn post(
        mut bench: Bench<TxPath>,
        flags: u8,
        mtu: u64,
        requests: &[Request],
        seed: u64,
        stall: bool,
    ) -> (Vec<u8>, Vec<Vec<u8>>, Vec<Issue>, u64) {
        set_up(&mut bench, flags, mtu);
        let mut card = Card::new(flags, requests, seed, stall);
        let start = bench.clock_count();
        let (mut quiet, mut seen, mut end) = (0, 0, start);
        let wanted = requests.iter().map(|r| packets(r.sges.iter().map(|s| s.1).sum(), 128 << mtu) as usize).sum::<usize>();
        while quiet < 700 {
            card.clock(&mut bench, false);
            let (beats, issues) = (&card.beats.got, &card.issues.got);
            if beats.len() != seen {
                seen = beats.len();
                quiet = 0;
                end = bench.clock_count();
            } else {
                quiet += if stall { 1 } else { 3 };
            }
            if beats.iter().filter(|beat| beat.last).count() >= wanted && issues.len() >= requests.len() {
                quiet = quiet.max(650);
            }
        }
        assert_eq!(bench.uut.entered.val(), bench.uut.finished.val());
        assert_eq!(bench.uut.entered.val(), requests.len().to_bits::<16>());
        let clocks = end - start;
        bench.finish();
        let mut frames = vec![vec![]];
        for beat in &card.beats.got {
            let bytes = unpack(beat.data);
            let len = beat.bytes.to_u64() as usize;
            assert!(bytes[len..].iter().all(|byte| *byte == 0), "bytes behind the frame are zero");
            frames.last_mut().unwrap().extend(&bytes[..len]);
            if beat.last {
                frames.push(vec![]);
            }
        }
        assert_eq!(frames.pop(), Some(vec![]), "the last frame is whole");
        (card.memory, frames, card.issues.got, clocks)
    }

    /// Checks a frame's ICRC bit by bit over a masked copy.
    fn has_good_icrc(frame: &[u8], ipv6: bool, vlan: bool) -> bool {
        let ip = if vlan { 18 } else { 14 };
        let udp = ip + if ipv6 { 40 } else { 20 };
        let mut copy = frame[ip..frame.len() - 4].to_vec();
        let mut ones = |at: usize| copy[at - ip] = 0xFF;
        if ipv6 {
            [1, 2, 3, 7].into_iter().for_each(|at| ones(ip + at));
        } else {
            [1, 8, 10, 11].into_iter().for_each(|at| ones(ip + at));
        }
        [udp + 6, udp + 7, udp + 12].into_iter().for_each(ones);
        if ipv6 {
            copy[0] |= 0x0F;
        }
        let crc = !crc32_step(wire::ICRC_SEED, &copy);
        frame[frame.len() - 4..] == crc.to_le_bytes()
    }

    fn check(name: &str, flags: u8, mtu: u64, requests: &[Request], seed: u64, stall: bool) -> u64 {
        let mut bench = open(name);
        reset(&mut bench);
        check_on(name, bench, flags, mtu, requests, seed, stall)
    }

    fn check_on(name: &str, bench: Bench<TxPath>, flags: u8, mtu: u64, requests: &[Request], seed: u64, stall: bool) -> u64 {
        let (memory, frames, issues, clocks) = post(bench, flags, mtu, requests, seed, stall);
        assert_eq!(issues.len(), requests.len());
        let (ipv6, vlan) = (flags & qp_flags::IPV6 != 0, flags & qp_flags::VLAN != 0);
        let mtu_bytes = 128usize << mtu;
        let mut frames = frames.into_iter();
        let mut psn = 0xFF_FFFEu32;
        for (request, issue) in requests.iter().zip(&issues) {
            let bytes: Vec<u8> = request
                .sges
                .iter()
                .flat_map(|(va, len, _)| {
                    let at = (va - 0x10_0000 + 0x1_0000) as usize;
                    memory[at..at + *len as usize].to_vec()
                })
                .chain(request.inline.iter().copied())
                .collect();
            let count = packets(bytes.len() as u32, mtu_bytes as u32) as usize;
            for packet in 0..count {
                let frame = frames.next().expect("a frame for every packet");
                assert!(has_good_icrc(&frame, ipv6, vlan), "{name}: ICRC of PSN {psn:06x}");
                let ip = if vlan { 18 } else { 14 };
                let udp = ip + if ipv6 { 40 } else { 20 };
                assert_eq!(frame[ip] >> 4, if ipv6 { 6 } else { 4 });
                if !ipv6 {
                    let sum: u32 = frame[ip..udp].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
                    assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "IPv4 checksum");
                    assert_eq!(usize::from(u16::from_be_bytes([frame[ip + 2], frame[ip + 3]])), frame.len() - ip);
                }
                assert_eq!(usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]])), frame.len() - udp);
                let bth = udp + 8;
                let opcode = [[7, 8], [6, 10]][usize::from(packet == 0)][usize::from(packet == count - 1)];
                assert_eq!(frame[bth], opcode);
                assert_eq!(u32::from_be_bytes(frame[bth + 8..bth + 12].try_into().unwrap()) & 0xFF_FFFF, psn);
                assert_eq!(frame[bth + 5..bth + 8], [0x11, 0x22, 0x33]);
                assert_eq!(frame[bth + 8] >> 7 == 1, packet == count - 1 || psn % 64 == 63);
                let mut at = bth + 12;
                if packet == 0 {
                    assert_eq!(frame[at..at + 8], request.va.to_be_bytes());
                    assert_eq!(frame[at + 8..at + 12], request.rkey.to_be_bytes());
                    assert_eq!(frame[at + 12..at + 16], (bytes.len() as u32).to_be_bytes());
                    at += 16;
                }
                let part = &bytes[packet * mtu_bytes..bytes.len().min((packet + 1) * mtu_bytes)];
                assert!(frame[at..at + part.len()] == *part, "{name}: payload of PSN {psn:06x}");
                let pad = frame.len() - 4 - at - part.len();
                assert_eq!((pad, usize::from(frame[bth + 1] >> 4)), ((4 - part.len() % 4) % 4, pad));
                psn = (psn + 1) & 0xFF_FFFF;
            }
            assert_eq!(issue.last_psn.to_u64() as u32, psn.wrapping_sub(1) & 0xFF_FFFF);
            assert_eq!(issue.status, 0u64);
        }
        assert_eq!(frames.next(), None, "no frame too many");
        clocks
    }

    fn random_requests(seed: u64, count: usize, max_sges: u64, max_len: u64) -> Vec<Request> {
        let mut random = Stalls::new(seed);
        (0..count)
            .map(|_| {
                let is_inline = random.random() % 3 == 0;
                let most = if max_sges > 2 { 96 } else { 32 };
                let sges = if is_inline { 0 } else { random.random() % (max_sges + 1) };
                let bytes = if is_inline { random.random() % (most + 1) } else { 0 };
                Request {
                    sges: (0..sges).map(|_| (0x10_0000 + random.random() % 0x1_0000, (random.random() % max_len) as u32, 0x3A5)).collect(),
                    inline: (0..bytes).map(|_| random.random() as u8).collect(),
                    va: random.random() << 20 | random.random(),
                    rkey: random.random() as u32,
                }
            })
            .collect()
    }

    #[test]
    fn requests_become_frames_with_their_bytes_under_random_stalls() {
        check("tx_v4", 0, 1, &random_requests(1, 14, 2, 400), 1, true);
        check("tx_v6_vlan", qp_flags::IPV6 | qp_flags::VLAN | qp_flags::TWO_UNITS, 1, &random_requests(2, 14, 6, 130), 2, true);
        check("tx_v6", qp_flags::IPV6, 2, &random_requests(3, 10, 2, 700), 3, true);
        check("tx_vlan", qp_flags::VLAN | qp_flags::TWO_UNITS, 3, &random_requests(4, 6, 4, 600), 4, true);
    }

    #[test]
    fn every_alignment_of_short_messages_is_gathered() {
        for base in 0..2 {
            let requests: Vec<Request> = (0..15)
                .map(|i| {
                    let n = base * 16 + i;
                    Request {
                        sges: vec![
                            (0x10_0000 + n, [1, 2, 3, 63, 64, 65][n as usize % 6], 0x3A5),
                            (0x10_0200 + 7 * n % 64, (n % 66) as u32, 0x3A5),
                        ],
                        va: n,
                        rkey: 1,
                        ..Default::default()
                    }
                })
                .collect();
            check("tx_aligned", 0, 1, &requests, base, false);
        }
    }

    #[test]
    fn a_long_message_leaves_at_a_beat_a_clock() {
        let requests = [Request { sges: vec![(0x10_0013, 16 * 1024, 0x3A5)], ..Default::default() }];
        let clocks = check("tx_rate", 0, 5, &requests, 1, false);
        // Four packets of 65 or 66 beats, and the latency of the first, store and forward included.
        assert!(clocks < 4 * 66 + 65 + 60, "{clocks} clocks");
    }

    #[test]
    fn a_bad_key_sends_nothing_and_stops_the_queue_pair() {
        for (va, len, lkey) in [(0x10_0000, 64, 0x3A4), (u64::MAX, 4, 0x3A5)] {
            let good = || Request { sges: vec![(0x10_0000, 64, 0x3A5)], ..Default::default() };
            let bad = Request { sges: vec![(0x10_0000, 4, 0x3A5), (va, len, lkey)], ..Default::default() };
            // Inline data behind it is thrown away with its request.
            let requests = [good(), bad, Request { inline: vec![7; 32], ..Default::default() }, good()];
            let (_, frames, issues, _) = run("tx_bad_key", 0, 1, &requests, 1, false);
            assert_eq!(frames.len(), 1);
            assert_eq!(issues.len(), 2);
            assert_eq!(issues[1].status, 4u64);
            assert_eq!(issues[1].last_psn, issues[0].last_psn);
        }
    }

    #[test]
    fn a_reset_in_the_middle_of_traffic_leaves_nothing_behind_and_all_works_anew() {
        let mut bench = open("tx_reset");
        reset(&mut bench);
        // Early, so that requests are on their way in; late, when frames leave; and with the wire shut, so that
        // everything is full; there is always an acknowledgement to send then.
        for (round, clocks, shut) in [(0, 40, 400), (1, 170, 400), (2, 260, 90)] {
            let flags = [qp_flags::VLAN | qp_flags::TWO_UNITS, 0, qp_flags::IPV6][round];
            set_up(&mut bench, flags, 1);
            let mut card = Card::new(flags, &random_requests(30 + round as u64, 14, 2, 3000), 30 + round as u64, round != 2);
            for clock in 0..clocks {
                if round == 2 {
                    bench.uut.ack.valid.next = true;
                    bench.uut.ack.data.next = AckReq { qpn: QPN.into(), psn: 9u64.into(), syndrome: 0x1Fu64.into(), msn: 3u64.into() };
                }
                card.clock(&mut bench, clock >= shut);
            }
            assert_ne!(bench.uut.entered.val(), 0u64, "requests are under way");
            assert_ne!(bench.uut.entered.val(), bench.uut.finished.val(), "requests are under way, round {round}");
            reset(&mut bench);
            // The queue pair is not there any more.
            bench.uut.bell.data.next = SqBell { qpn: QPN.into(), index: 1u64.into() };
            bench.uut.bell.valid.next = true;
            bench.cycles(1);
            bench.uut.bell.valid.next = false;
            let mut bad = 0;
            for _ in 0..10 {
                bench.settle();
                bad += usize::from(bench.uut.bad_bell.val());
                assert!(!bench.uut.fetch_req.valid.val());
                bench.cycles(1);
            }
            assert_eq!((bad, bench.uut.entered.val()), (1, 0u64.into()));
        }
        check_on("tx_reset", bench, 0, 1, &random_requests(40, 7, 2, 400), 40, true);
    }
}
