//! Chooses what is sent next: an acknowledgement or a request packet.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `desc` | sink | request packets, in order |
//! | `ack` | sink | acknowledgements and NAKs |
//! | `payload_entered` | in | the last line of a packet's payload has gone into the payload FIFO |
//! | `packet` | source | what is sent, in order |
//! | `finished` | out | requests whose payload is all on the card, modulo 2^16 |
//! | `sent`, `sent_ack`, `sent_nak` | out | one clock for each, for the counters |
//!
//! A request packet is chosen only when its whole payload is on the card, so a frame never starves
//! on the wire and an acknowledgement never waits for host memory. Acknowledgements go first, but
//! after one of them a request packet that can go goes, so neither starves the other.
//!
//! Latency: one clock. Throughput: one packet a clock.

use rust_hdl::prelude::*;
use verbena_abi::wire;

use crate::bus::{AckReq, PacketDesc, StreamSink, StreamSource};
use crate::prim::Fifo;

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
    total: DFF<Bits<16>>,
    is_sent: DFF<Bit>,
    is_ack: DFF<Bit>,
    is_nak: DFF<Bit>,

    incoming: Signal<Local, PacketDesc>,
    reply: Signal<Local, AckReq>,
    has_room: Signal<Local, Bit>,
    can_send: Signal<Local, Bit>,
    take_ack: Signal<Local, Bit>,
    take_desc: Signal<Local, Bit>,
    takes_payload: Signal<Local, Bit>,
    desc_zero: Constant<PacketDesc>,
    ack_opcode: Constant<Bits<8>>,
    ack_syndrome: Constant<Bits<8>>,
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
            total: Default::default(),
            is_sent: Default::default(),
            is_ack: Default::default(),
            is_nak: Default::default(),
            incoming: Default::default(),
            reply: Default::default(),
            has_room: Default::default(),
            can_send: Default::default(),
            take_ack: Default::default(),
            take_desc: Default::default(),
            takes_payload: Default::default(),
            desc_zero: Constant::new(PacketDesc::default()),
            ack_opcode: Constant::new((wire::Opcode::Acknowledge as u8).to_bits()),
            ack_syndrome: Constant::new(wire::syndrome::ACK.to_bits()),
        }
    }
}

impl Logic for Choose {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, payloads, was_ack, total, is_sent, is_ack, is_nak);
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
        self.take_ack.next = self.has_room.val() & self.ack.valid.val() & !(self.was_ack.q.val() & self.can_send.val());
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
        self.is_nak.d.next = self.take_ack.val() & (self.reply.val().syndrome != self.ack_syndrome.val());
        self.packets.fill.valid.next = self.take_ack.val() | (self.take_desc.val() & !self.incoming.val().is_void);
        self.packets.fill.data.next = self.incoming.val();
        if self.take_ack.val() {
            self.was_ack.d.next = true;
            self.packets.fill.data.next = self.desc_zero.val();
            self.packets.fill.data.next.qpn = self.reply.val().qpn;
            self.packets.fill.data.next.opcode = self.ack_opcode.val();
            self.packets.fill.data.next.psn = self.reply.val().psn;
            self.packets.fill.data.next.has_aeth = true;
            self.packets.fill.data.next.rkey =
                (bit_cast::<32, 8>(self.reply.val().syndrome) << 24) | bit_cast::<32, 24>(self.reply.val().msn);
        } else if self.take_desc.val() {
            self.was_ack.d.next = false;
        }

        if self.reset.val() {
            self.payloads.d.next = 0.into();
            self.total.d.next = 0.into();
            self.was_ack.d.next = false;
        }
    }
}
