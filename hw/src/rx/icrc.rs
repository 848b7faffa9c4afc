//! Checks the ICRC of every frame at one beat a clock.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `valid` `beat` | in | beats from [`super::intake::RxIntake`] |
//! | `ok` | out | the frame's ICRC is right; seven clocks behind the frame's last beat |
//!
//! Throughput: one beat every clock; nothing stalls. The UDP length says where the ICRC ends, so
//! padding and trailers behind it do not count, and a frame whose last beat ends before it is not right;
//! bytes that are missing within that beat are the parser's to see.
//!
//! What is fed to the CRC is the frame with these bytes replaced: Ethernet header and tag by zeros
//! (they leave a zero register at zero), fields that may change on the way by ones, everything
//! behind the ICRC by zeros; and the first four bytes of the IP header get the register after the
//! stand-in for the link header XORed in. With the four bytes of a right ICRC fed as well, the
//! register holds a constant, moved on by the number of zero bytes behind it.
//!
//! A frame that is neither IPv4 nor IPv6 is treated like IPv4; the parser drops it.

use rust_hdl::prelude::*;

use super::front_records::RxBeat;
use crate::prim::{pack, zero_bytes, Crc512};
use verbena_abi::wire::{ICRC_RESIDUE, ICRC_SEED};

/// Clocks from a beat at the input to the ICRC's verdict at `ok`.
pub const LATENCY: usize = 7;

/// Returns where the IP header begins.
fn l3_offset(vlan: bool) -> usize {
    14 + 4 * usize::from(vlan)
}

/// Returns where the UDP header begins.
fn l4_offset(vlan: bool, ipv6: bool) -> usize {
    l3_offset(vlan) + if ipv6 { 40 } else { 20 }
}

/// Returns the bits that count as ones whatever they are, in the first two beats.
fn masked(vlan: bool, ipv6: bool) -> [u8; 128] {
    let (l3, l4) = (l3_offset(vlan), l4_offset(vlan, ipv6));
    let mut mask = [0; 128];
    if ipv6 {
        // Traffic class and flow label, but not the version; hop limit.
        mask[l3] = 0x0F;
        mask[l3 + 1..l3 + 4].fill(0xFF);
        mask[l3 + 7] = 0xFF;
    } else {
        // TOS, TTL, header checksum.
        mask[l3 + 1] = 0xFF;
        mask[l3 + 8] = 0xFF;
        mask[l3 + 10..l3 + 12].fill(0xFF);
    }
    // UDP checksum; FECN, BECN and reserved bits of the BTH.
    mask[l4 + 6..l4 + 8].fill(0xFF);
    mask[l4 + 8 + 4] = 0xFF;
    mask
}

/// Returns the mask of one beat.
fn masked_beat(vlan: bool, ipv6: bool, beat: usize) -> Constant<Bits<512>> {
    Constant::new(pack(&masked(vlan, ipv6)[64 * beat..64 * (beat + 1)]))
}

/// Returns the bits of beat 0 that are fed at all.
fn covered(vlan: bool) -> Constant<Bits<512>> {
    let mut mask = [0xFF; 64];
    mask[..l3_offset(vlan)].fill(0);
    Constant::new(pack(&mask))
}

/// Returns what is XORed into beat 0 to start the register.
fn seed(vlan: bool) -> Constant<Bits<512>> {
    let mut mask = [0; 64];
    mask[l3_offset(vlan)..][..4].copy_from_slice(&ICRC_SEED.to_le_bytes());
    Constant::new(pack(&mask))
}

/// The ICRC check.
#[derive(LogicBlock)]
pub struct IcrcCheck {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub valid: Signal<In, Bit>,
    pub beat: Signal<In, RxBeat>,
    pub ok: Signal<Out, Bit>,

    data: Signal<Local, Bits<512>>,
    vlan: Signal<Local, Bit>,
    ipv6: Signal<Local, Bit>,
    udp_wire: Signal<Local, Bits<16>>,
    udp_len: Signal<Local, Bits<16>>,
    l4: Signal<Local, Bits<17>>,

    data3: DFF<Bits<512>>,
    valid3: DFF<Bit>,
    first3: DFF<Bit>,
    second3: DFF<Bit>,
    vlan3: DFF<Bit>,
    ipv6_3: DFF<Bit>,
    end3: DFF<Bits<17>>,

    data4: DFF<Bits<512>>,
    valid4: DFF<Bit>,
    first4: DFF<Bit>,
    second4: DFF<Bit>,
    vlan4: DFF<Bit>,
    ipv6_4: DFF<Bit>,
    remain4: DFF<Bits<17>>,
    remain_lines: Signal<Local, Bits<11>>,
    remain_bytes: Signal<Local, Bits<6>>,
    shift: Signal<Local, Bits<9>>,
    tail: Signal<Local, Bits<512>>,
    keep: Signal<Local, Bits<512>>,
    ones: Signal<Local, Bits<512>>,
    fed: Signal<Local, Bits<512>>,
    start: Signal<Local, Bits<512>>,

    data5: DFF<Bits<512>>,
    feed5: DFF<Bit>,
    first5: DFF<Bit>,
    last5: DFF<Bit>,
    zeros5: DFF<Bits<6>>,
    zeros6: DFF<Bits<6>>,
    zeros7: DFF<Bits<6>>,
    begins5: DFF<Bit>,
    begins6: DFF<Bit>,
    begins7: DFF<Bit>,
    begins8: DFF<Bit>,
    crc: Crc512,
    residue: ROM<Bits<32>, 6>,
    residue8: DFF<Bits<32>>,
    ok9: DFF<Bit>,

    all: Constant<Bits<512>>,
    zero: Constant<Bits<512>>,
    none: Constant<Bits<6>>,
    ones0_v4: Constant<Bits<512>>,
    ones0_v4_vlan: Constant<Bits<512>>,
    ones0_v6: Constant<Bits<512>>,
    ones0_v6_vlan: Constant<Bits<512>>,
    ones1_v6: Constant<Bits<512>>,
    ones1_v6_vlan: Constant<Bits<512>>,
    fed_plain: Constant<Bits<512>>,
    fed_vlan: Constant<Bits<512>>,
    seed_plain: Constant<Bits<512>>,
    seed_vlan: Constant<Bits<512>>,
    l4_v4: Constant<Bits<17>>,
    l4_v4_vlan: Constant<Bits<17>>,
    l4_v6: Constant<Bits<17>>,
    l4_v6_vlan: Constant<Bits<17>>,
}

impl Default for IcrcCheck {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            valid: Default::default(),
            beat: Default::default(),
            ok: Default::default(),
            data: Default::default(),
            vlan: Default::default(),
            ipv6: Default::default(),
            udp_wire: Default::default(),
            udp_len: Default::default(),
            l4: Default::default(),
            data3: Default::default(),
            valid3: Default::default(),
            first3: Default::default(),
            second3: Default::default(),
            vlan3: Default::default(),
            ipv6_3: Default::default(),
            end3: Default::default(),
            data4: Default::default(),
            valid4: Default::default(),
            first4: Default::default(),
            second4: Default::default(),
            vlan4: Default::default(),
            ipv6_4: Default::default(),
            remain4: Default::default(),
            remain_lines: Default::default(),
            remain_bytes: Default::default(),
            shift: Default::default(),
            tail: Default::default(),
            keep: Default::default(),
            ones: Default::default(),
            fed: Default::default(),
            start: Default::default(),
            data5: Default::default(),
            feed5: Default::default(),
            first5: Default::default(),
            last5: Default::default(),
            zeros5: Default::default(),
            zeros6: Default::default(),
            zeros7: Default::default(),
            begins5: Default::default(),
            begins6: Default::default(),
            begins7: Default::default(),
            begins8: Default::default(),
            crc: Default::default(),
            residue8: Default::default(),
            ok9: Default::default(),
            residue: ROM::from((0..64).map(|zeros| zero_bytes(ICRC_RESIDUE, zeros).to_bits())),
            all: Constant::new(pack(&[0xFF; 64])),
            zero: Constant::new(pack(&[])),
            none: Constant::new(0u8.to_bits()),
            ones0_v4: masked_beat(false, false, 0),
            ones0_v4_vlan: masked_beat(true, false, 0),
            ones0_v6: masked_beat(false, true, 0),
            ones0_v6_vlan: masked_beat(true, true, 0),
            ones1_v6: masked_beat(false, true, 1),
            ones1_v6_vlan: masked_beat(true, true, 1),
            fed_plain: covered(false),
            fed_vlan: covered(true),
            seed_plain: seed(false),
            seed_vlan: seed(true),
            l4_v4: Constant::new(l4_offset(false, false).to_bits()),
            l4_v4_vlan: Constant::new(l4_offset(true, false).to_bits()),
            l4_v6: Constant::new(l4_offset(false, true).to_bits()),
            l4_v6_vlan: Constant::new(l4_offset(true, true).to_bits()),
        }
    }
}

impl Logic for IcrcCheck {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, data3, valid3, first3, second3, vlan3, ipv6_3, end3);
        dff_setup!(self, clock, data4, valid4, first4, second4, vlan4, ipv6_4, remain4);
        dff_setup!(self, clock, data5, feed5, first5, last5, zeros5, zeros6, zeros7, begins5, begins6, begins7, begins8);
        dff_setup!(self, clock, residue8, ok9);
        clock!(self, clock, crc);
        self.crc.reset.next = self.reset.val();

        // Where the ICRC ends: the UDP length is in beat 0 of every layout.
        self.data.next = self.beat.val().data;
        self.vlan.next = self.beat.val().vlan;
        self.ipv6.next = self.beat.val().ipv6;
        self.udp_wire.next = self.data.val().get_bits::<16>(304);
        self.l4.next = self.l4_v4.val();
        if self.vlan.val() & !self.ipv6.val() {
            self.udp_wire.next = self.data.val().get_bits::<16>(336);
            self.l4.next = self.l4_v4_vlan.val();
        }
        if !self.vlan.val() & self.ipv6.val() {
            self.udp_wire.next = self.data.val().get_bits::<16>(464);
            self.l4.next = self.l4_v6.val();
        }
        if self.vlan.val() & self.ipv6.val() {
            self.udp_wire.next = self.data.val().get_bits::<16>(496);
            self.l4.next = self.l4_v6_vlan.val();
        }
        self.udp_len.next = (self.udp_wire.val() << 8) | (self.udp_wire.val() >> 8);
        self.data3.d.next = self.data.val();
        self.valid3.d.next = self.valid.val();
        self.first3.d.next = self.beat.val().first;
        self.second3.d.next = self.beat.val().second;
        self.vlan3.d.next = self.vlan.val();
        self.ipv6_3.d.next = self.ipv6.val();
        if self.beat.val().first {
            self.end3.d.next = bit_cast::<17, 16>(self.udp_len.val()) + self.l4.val();
        }

        // How many bytes from the beginning of this beat to the end of the ICRC.
        self.data4.d.next = self.data3.q.val();
        self.valid4.d.next = self.valid3.q.val();
        self.first4.d.next = self.first3.q.val();
        self.second4.d.next = self.second3.q.val();
        self.vlan4.d.next = self.vlan3.q.val();
        self.ipv6_4.d.next = self.ipv6_3.q.val();
        self.remain_lines.next = self.remain4.q.val().get_bits::<11>(6);
        self.remain_bytes.next = self.remain4.q.val().get_bits::<6>(0);
        if self.valid3.q.val() {
            self.remain4.d.next = self.remain4.q.val() - 64;
            if self.remain_lines.val() == 0 {
                self.remain4.d.next = 0.into();
            }
            if self.first3.q.val() {
                self.remain4.d.next = self.end3.q.val();
            }
        }

        // The masked beat.
        self.ones.next = self.zero.val();
        self.fed.next = self.all.val();
        self.start.next = self.zero.val();
        if self.first4.q.val() {
            self.ones.next = self.ones0_v4.val();
            self.fed.next = self.fed_plain.val();
            self.start.next = self.seed_plain.val();
            if self.ipv6_4.q.val() {
                self.ones.next = self.ones0_v6.val();
            }
            if self.vlan4.q.val() {
                self.ones.next = self.ones0_v4_vlan.val();
                self.fed.next = self.fed_vlan.val();
                self.start.next = self.seed_vlan.val();
                if self.ipv6_4.q.val() {
                    self.ones.next = self.ones0_v6_vlan.val();
                }
            }
        }
        // Only IPv6 has a masked field in beat 1.
        if self.second4.q.val() & self.ipv6_4.q.val() {
            self.ones.next = self.ones1_v6.val();
            if self.vlan4.q.val() {
                self.ones.next = self.ones1_v6_vlan.val();
            }
        }
        self.shift.next = bit_cast::<9, 6>(self.remain_bytes.val()) << 3;
        self.tail.next = self.all.val() << self.shift.val();
        self.keep.next = self.tail.val() ^ self.all.val();
        if self.remain_lines.val() != 0 {
            self.keep.next = self.all.val();
        }
        self.data5.d.next = ((self.data4.q.val() | self.ones.val()) & self.fed.val() & self.keep.val()) ^ self.start.val();
        self.feed5.d.next = self.valid4.q.val() & (self.remain4.q.val() != 0);
        self.first5.d.next = self.first4.q.val();
        self.last5.d.next = (self.remain_lines.val() == 0) | ((self.remain_lines.val() == 1) & (self.remain_bytes.val() == 0));
        self.zeros5.d.next = self.none.val() - self.remain_bytes.val();
        self.begins5.d.next = self.valid4.q.val() & self.first4.q.val();

        self.crc.valid.next = self.feed5.q.val();
        self.crc.first.next = self.first5.q.val();
        self.crc.last.next = self.last5.q.val();
        self.crc.data.next = self.data5.q.val();
        self.zeros6.d.next = self.zeros5.q.val();
        self.zeros7.d.next = self.zeros6.q.val();
        self.residue.address.next = self.zeros7.q.val();
        self.residue8.d.next = self.residue.data.val();
        self.begins6.d.next = self.begins5.q.val();
        self.begins7.d.next = self.begins6.q.val();
        self.begins8.d.next = self.begins7.q.val();

        // The answer stands from the beat that ends the ICRC to the beginning of the next frame.
        if self.begins8.q.val() {
            self.ok9.d.next = false;
        }
        if self.crc.out_valid.val() & self.crc.out_last.val() {
            self.ok9.d.next = self.crc.out_state.val() == self.residue8.q.val();
        }
        self.ok.next = self.ok9.q.val();

        if self.reset.val() {
            self.valid3.d.next = false;
            self.valid4.d.next = false;
            self.feed5.d.next = false;
            self.begins5.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
