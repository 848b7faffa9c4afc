//! Chooses what is sent next: an acknowledgement or a request packet.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `desc` | sink | request packets, in order |
//! | `ack` | sink | acknowledgements and NAKs |
//! | `payload_entered` | in | the last line of a packet's payload is taken from memory, and in the payload FIFO before its header is built |
//! | `packet` | source | what is sent, in order |
//! | `finished` | out | requests whose payload is all on the card, modulo 2^16 |
//! | `sent`, `sent_ack`, `sent_nak` | out | one clock for each, for the counters |
//!
//! A request packet is chosen only when its whole payload is on the card, so a frame never starves
//! on the wire and an acknowledgement never waits for host memory. An acknowledgement goes when no
//! request packet can, or when 16 KiB of request packets went since the last one: while both directions
//! are busy it costs the wire half a per cent, and those that wait meanwhile become one for each queue
//! pair. A NAK at the head of the answers goes first, but after any answer a request packet that can go goes.
//!
//! Latency: one clock. Throughput: one packet a clock.

use rust_hdl::prelude::*;
use verbena_abi::wire;

use crate::bus::{AckReq, PacketDesc, StreamSink, StreamSource};
use crate::prim::Fifo;

/// Bytes that a request packet takes on the wire beside its payload, about.
const OVERHEAD: u64 = 98;

#[derive(LogicBlock)]
pub struct Choose {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub desc: StreamSink<PacketDesc>,
    pub ack: StreamSink<AckReq>,
    pub payload_entered: Signal<In, Bit>,
    pub packet: StreamSource<PacketDesc>,
    pub finished: Signal<Out, Bits<16>>,
    pub sent: Signal<Out, Bit>,
    pub sent_ack: Signal<Out, Bit>,
    pub sent_nak: Signal<Out, Bit>,

    packets: Fifo<PacketDesc, 1, 2>,
    payloads: DFF<Bits<10>>,
    was_ack: DFF<Bit>,
    since_ack: DFF<Bits<15>>,
    total: DFF<Bits<16>>,
    is_sent: DFF<Bit>,
    is_ack: DFF<Bit>,
    is_nak: DFF<Bit>,

    incoming: Signal<Local, PacketDesc>,
    reply: Signal<Local, AckReq>,
    has_room: Signal<Local, Bit>,
    can_send: Signal<Local, Bit>,
    refuses: Signal<Local, Bit>,
    may_answer: Signal<Local, Bit>,
    take_ack: Signal<Local, Bit>,
    take_desc: Signal<Local, Bit>,
    takes_payload: Signal<Local, Bit>,
    desc_zero: Constant<PacketDesc>,
    ack_opcode: Constant<Bits<8>>,
    ack_syndrome: Constant<Bits<8>>,
    overhead: Constant<Bits<15>>,
}

impl Default for Choose {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            desc: Default::default(),
            ack: Default::default(),
            payload_entered: Default::default(),
            packet: Default::default(),
            finished: Default::default(),
            sent: Default::default(),
            sent_ack: Default::default(),
            sent_nak: Default::default(),
            packets: Default::default(),
            payloads: Default::default(),
            was_ack: Default::default(),
            since_ack: Default::default(),
            total: Default::default(),
            is_sent: Default::default(),
            is_ack: Default::default(),
            is_nak: Default::default(),
            incoming: Default::default(),
            reply: Default::default(),
            has_room: Default::default(),
            can_send: Default::default(),
            refuses: Default::default(),
            may_answer: Default::default(),
            take_ack: Default::default(),
            take_desc: Default::default(),
            takes_payload: Default::default(),
            desc_zero: Constant::new(PacketDesc::default()),
            ack_opcode: Constant::new((wire::Opcode::Acknowledge as u8).to_bits()),
            ack_syndrome: Constant::new(wire::syndrome::ACK.to_bits()),
            overhead: Constant::new(OVERHEAD.to_bits()),
        }
    }
}

impl Logic for Choose {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, payloads, was_ack, since_ack, total, is_sent, is_ack, is_nak);
        clock!(self, clock, packets);
        self.packets.reset.next = self.reset.val();
        StreamSource::<PacketDesc>::link(&mut self.packet, &mut self.packets.drain);
        self.finished.next = self.total.q.val();
        self.sent.next = self.is_sent.q.val();
        self.sent_ack.next = self.is_ack.q.val();
        self.sent_nak.next = self.is_nak.q.val();

        self.incoming.next = self.desc.data.val();
        self.reply.next = self.ack.data.val();
        self.has_room.next = self.packets.fill.ready.val();
        self.can_send.next = self.desc.valid.val() & (self.payloads.q.val().any() | !self.incoming.val().len.any());
        self.refuses.next = self.reply.val().syndrome != self.ack_syndrome.val();
        self.may_answer.next = !self.can_send.val() | self.since_ack.q.val().get_bit(14) | (self.refuses.val() & !self.was_ack.q.val());
        self.take_ack.next = self.has_room.val() & self.ack.valid.val() & self.may_answer.val();
        self.take_desc.next = self.has_room.val() & self.can_send.val() & !self.take_ack.val();
        self.ack.ready.next = self.take_ack.val();
        self.desc.ready.next = self.take_desc.val();
        self.takes_payload.next = self.take_desc.val() & self.incoming.val().len.any();
        if self.payload_entered.val() & !self.takes_payload.val() {
            self.payloads.d.next = self.payloads.q.val() + 1;
        } else if self.takes_payload.val() & !self.payload_entered.val() {
            self.payloads.d.next = self.payloads.q.val() - 1;
        }
        if self.take_desc.val() & self.incoming.val().ends_request {
            self.total.d.next = self.total.q.val() + 1;
        }
        self.is_sent.d.next = self.take_ack.val() | (self.take_desc.val() & !self.incoming.val().is_void);
        self.is_ack.d.next = self.take_ack.val();
        self.is_nak.d.next = self.take_ack.val() & self.refuses.val();
        self.packets.fill.valid.next = self.take_ack.val() | (self.take_desc.val() & !self.incoming.val().is_void);
        self.packets.fill.data.next = self.incoming.val();
        if self.take_ack.val() {
            self.was_ack.d.next = true;
            self.since_ack.d.next = 0.into();
            self.packets.fill.data.next = self.desc_zero.val();
            self.packets.fill.data.next.qpn = self.reply.val().qpn;
            self.packets.fill.data.next.opcode = self.ack_opcode.val();
            self.packets.fill.data.next.psn = self.reply.val().psn;
            self.packets.fill.data.next.has_aeth = true;
            self.packets.fill.data.next.rkey =
                (bit_cast::<32, 8>(self.reply.val().syndrome) << 24) | bit_cast::<32, 24>(self.reply.val().msn);
        } else if self.take_desc.val() {
            self.was_ack.d.next = false;
            if !self.since_ack.q.val().get_bit(14) {
                self.since_ack.d.next = self.since_ack.q.val() + bit_cast::<15, 13>(self.incoming.val().len) + self.overhead.val();
            }
        }

        if self.reset.val() {
            self.payloads.d.next = 0.into();
            self.total.d.next = 0.into();
            self.was_ack.d.next = false;
            self.since_ack.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn packet(i: u64, len: u64, is_void: bool, ends_request: bool) -> PacketDesc {
        PacketDesc {
            qpn: (i % 256).into(),
            opcode: 10u64.into(),
            psn: i.into(),
            len: len.into(),
            is_void,
            ends_request,
            ..Default::default()
        }
    }

    fn reply(i: u64) -> AckReq {
        let syndrome = if i % 3 == 0 { wire::syndrome::NAK_SEQUENCE } else { wire::syndrome::ACK };
        AckReq { qpn: (255 - i % 256).into(), psn: (0x80_0000 + i).into(), syndrome: u64::from(syndrome).into(), msn: (7 * i).into() }
    }

    /// Returns the packet that a reply becomes.
    fn answer(ack: &AckReq) -> PacketDesc {
        PacketDesc {
            qpn: ack.qpn,
            opcode: 0x11u64.into(),
            psn: ack.psn,
            has_aeth: true,
            rkey: (ack.syndrome.to_u64() << 24 | ack.msn.to_u64()).into(),
            ..Default::default()
        }
    }

    fn reset(bench: &mut Bench<Choose>) {
        bench.uut.desc.valid.next = false;
        bench.uut.ack.valid.next = false;
        bench.uut.payload_entered.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// Sends all, and checks every choice against what could go in its clock; stops after `limit` clocks.
    fn run(bench: &mut Bench<Choose>, descs: &[PacketDesc], acks: &[AckReq], stalls: [Stalls; 4], limit: usize) -> usize {
        let [desc, ack, mut payload, drain] = stalls;
        let mut desc = Driver::new(descs.iter().copied(), desc);
        let mut ack = Driver::new(acks.iter().copied(), ack);
        let mut monitor = Monitor::new(drain);
        let payloads = descs.iter().filter(|desc| desc.len.any()).count();
        let (mut entered, mut ready, mut was_ack, mut since_ack) = (0, 0, false, 0);
        let mut expected = vec![];
        let (mut sent, mut sent_ack, mut sent_nak, mut finished) = (0, 0, 0, 0);
        let wanted = acks.len() + descs.iter().filter(|desc| !desc.is_void).count();
        let mut clock = 0;
        while clock < limit && !(monitor.got.len() == wanted && desc.is_done() && ack.is_done()) {
            let enters = entered < payloads && payload.go();
            desc.before(&mut bench.uut.desc);
            ack.before(&mut bench.uut.ack);
            monitor.before(&mut bench.uut.packet);
            bench.uut.payload_entered.next = enters;
            bench.settle();
            let (next_desc, next_ack) = (desc.queue.front().copied(), ack.queue.front().copied());
            let uut = &bench.uut;
            let has_room = uut.packets.fill.ready.val();
            let can_send = uut.desc.valid.val() && next_desc.is_some_and(|desc| !desc.len.any() || ready > 0);
            let refuses = next_ack.is_some_and(|ack| ack.syndrome != u64::from(wire::syndrome::ACK));
            let takes_ack = has_room && uut.ack.valid.val() && (!can_send || since_ack >= 16384 || (refuses && !was_ack));
            assert_eq!(uut.ack.valid.val() && uut.ack.ready.val(), takes_ack, "an answer goes when it is its turn");
            let takes_desc = uut.desc.valid.val() && uut.desc.ready.val();
            assert_eq!(takes_desc, has_room && can_send && !takes_ack, "a request packet goes when its payload is here");
            assert_eq!(uut.finished.val(), finished as u64);
            sent += usize::from(uut.sent.val());
            sent_ack += usize::from(uut.sent_ack.val());
            sent_nak += usize::from(uut.sent_nak.val());
            if takes_ack {
                (was_ack, since_ack) = (true, 0);
                expected.push(answer(&next_ack.unwrap()));
            } else if takes_desc {
                let next = next_desc.unwrap();
                was_ack = false;
                since_ack += next.len.to_u64() + OVERHEAD;
                ready -= usize::from(next.len.any());
                finished += usize::from(next.ends_request);
                if !next.is_void {
                    expected.push(next);
                }
            }
            entered += usize::from(enters);
            ready += usize::from(enters);
            desc.after(&bench.uut.desc);
            ack.after(&bench.uut.ack);
            monitor.after(&bench.uut.packet);
            bench.edge();
            clock += 1;
        }
        if clock < limit {
            assert_eq!(monitor.got, expected);
            assert_eq!((sent, sent_ack), (wanted, acks.len()));
            assert_eq!(sent_nak, acks.iter().filter(|ack| ack.syndrome != u64::from(wire::syndrome::ACK)).count());
            assert_eq!(finished, descs.iter().filter(|desc| desc.ends_request).count());
        }
        clock
    }

    #[test]
    fn packets_go_when_their_payload_is_here_and_acknowledgements_before_them() {
        let mut bench = Bench::new("tx_choose", Choose::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..5 {
            let mut random = Stalls::new(seed);
            let mut descs = vec![];
            for i in 0..150 {
                let is_void = random.random() % 5 == 0;
                let len = if is_void || random.random() % 4 == 0 { 0 } else { 1 + random.random() % 4096 };
                descs.push(packet(i, len, is_void, is_void || random.random() % 2 == 0));
            }
            let acks: Vec<_> = (0..100).map(reply).collect();
            run(&mut bench, &descs, &acks, [10, 20, 30, 40].map(|n| Stalls::new(seed + n)), 60 + seed as usize);
            reset(&mut bench);
            assert!(run(&mut bench, &descs, &acks, [50, 60, 70, 80].map(|n| Stalls::new(seed + n)), 5000) < 5000);
            reset(&mut bench);
        }
        bench.finish();
    }

    #[test]
    fn a_packet_goes_every_clock_neither_kind_starves_and_memory_holds_no_acknowledgement_back() {
        let mut bench = Bench::new("tx_choose_rate", Choose::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        let free = || [Stalls::none(), Stalls::none(), Stalls::none(), Stalls::none()];
        // Both always wait: one of them goes every clock, and then the rest of the answers.
        let descs: Vec<_> = (0..60).map(|i| packet(i, 0, false, true)).collect();
        let acks: Vec<_> = (0..60).map(reply).collect();
        assert_eq!(run(&mut bench, &descs, &acks, free(), 1000), 121);
        // Packets without end: one acknowledgement goes for 16 KiB of them, the first behind 168 packets of 98 bytes.
        reset(&mut bench);
        let descs: Vec<_> = (0..400).map(|i| packet(i, 0, false, true)).collect();
        let acks: Vec<_> = [1, 2, 4].map(reply).to_vec();
        assert_eq!(run(&mut bench, &descs, &acks, free(), 1000), 404);
        // Payload that comes a line a clock is enough for a packet a clock.
        reset(&mut bench);
        let descs: Vec<_> = (0..60).map(|i| packet(i, 64, false, true)).collect();
        assert_eq!(run(&mut bench, &descs, &[], free(), 1000), 62);
        // Payload that does not come: the packet waits, acknowledgements go on.
        reset(&mut bench);
        bench.uut.desc.data.next = packet(0, 1, false, true);
        bench.uut.desc.valid.next = true;
        bench.uut.packet.ready.next = true;
        let mut ack = Driver::new((0..20).map(reply), Stalls::none());
        for _ in 0..20 {
            ack.before(&mut bench.uut.ack);
            bench.settle();
            assert!(!bench.uut.desc.ready.val());
            ack.after(&bench.uut.ack);
            bench.edge();
        }
        assert!(ack.is_done());
        // Nobody takes: two packets wait here, and nothing more is chosen.
        bench.uut.packet.ready.next = false;
        bench.uut.ack.data.next = reply(1);
        bench.uut.ack.valid.next = true;
        bench.cycles(5);
        assert!(!bench.uut.ack.ready.val());
        assert_eq!(bench.uut.packets.level.val(), 2u64);
        bench.finish();
    }
}
