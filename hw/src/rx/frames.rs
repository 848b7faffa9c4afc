//! Frames for the benches of the receive front's blocks, and a model that parses them byte by byte.

use rust_hdl::prelude::*;
use verbena_abi::wire::{RxVerdict, ICRC_SEED};

use super::front_records::{RxBeat, RxChecks, RxFields, RxReport};
use crate::prim::{crc32_step, pack};
use crate::testing::Stalls;

pub const MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
pub const IPV4: [u8; 4] = [192, 0, 2, 77];
pub const IPV6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// A frame to build; everything else is random.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub vlan: bool,
    pub ipv6: bool,
    pub opcode: u8,
    pub len: usize,
}

/// Bytes between BTH and payload, or nothing for opcodes that are not let through.
pub fn extension(opcode: u8) -> Option<usize> {
    Some(match opcode {
        0x00 | 0x01 | 0x02 | 0x04 | 0x07 | 0x08 | 0x0E | 0x81 => 0,
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 | 0x0D | 0x0F | 0x10 | 0x11 => 4,
        0x64 => 8,
        0x12 | 0x65 => 12,
        0x06 | 0x0A | 0x0C => 16,
        0x0B => 20,
        0x13 | 0x14 => 28,
        _ => return None,
    })
}

/// Where the parts of a frame begin, by its types; nothing if it is no IP frame.
pub fn offsets(frame: &[u8]) -> Option<(bool, bool, usize, usize)> {
    let vlan = frame[12..14] == [0x81, 0x00];
    let l3 = if vlan { 18 } else { 14 };
    match frame[l3 - 2..l3] {
        [0x08, 0x00] => Some((vlan, false, l3, l3 + 20)),
        [0x86, 0xDD] => Some((vlan, true, l3, l3 + 40)),
        _ => None,
    }
}

/// The ICRC of `frame[l3..end]`, from the definition: masked copy, eight bytes of ones in front.
pub fn icrc(frame: &[u8], ipv6: bool, l3: usize, l4: usize, end: usize) -> [u8; 4] {
    let mut copy = frame[..end].to_vec();
    if ipv6 {
        copy[l3] |= 0x0F;
        copy[l3 + 1..l3 + 4].fill(0xFF);
        copy[l3 + 7] = 0xFF;
    } else {
        copy[l3 + 1] = 0xFF;
        copy[l3 + 8] = 0xFF;
        copy[l3 + 10..l3 + 12].fill(0xFF);
    }
    copy[l4 + 6..l4 + 8].fill(0xFF);
    copy[l4 + 12] = 0xFF;
    assert_eq!(crc32_step(!0, &[0xFF; 8]), ICRC_SEED);
    (!crc32_step(ICRC_SEED, &copy[l3..])).to_le_bytes()
}

pub fn build(plan: Plan, random: &mut Stalls) -> Vec<u8> {
    let mut byte = || random.random() as u8;
    let mut frame = MAC.to_vec();
    frame.extend((0..6).map(|_| byte()));
    if plan.vlan {
        frame.extend([0x81, 0x00, byte(), byte()]);
    }
    frame.extend(if plan.ipv6 { [0x86, 0xDD] } else { [0x08, 0x00] });
    let pad = plan.len.wrapping_neg() % 4;
    let extension = extension(plan.opcode).unwrap_or(0);
    let udp_len = 8 + 12 + extension + plan.len + pad + 4;
    let l3 = frame.len();
    if plan.ipv6 {
        frame.extend([0x60 | byte() >> 4, byte(), byte(), byte()]);
        frame.extend((udp_len as u16).to_be_bytes());
        frame.extend([17, byte()]);
        frame.extend((0..16).map(|_| byte()));
        frame.extend(IPV6);
    } else {
        frame.extend([0x45, byte()]);
        frame.extend((udp_len as u16 + 20).to_be_bytes());
        frame.extend([byte(), byte(), 0x40, 0, byte(), 17, byte(), byte()]);
        frame.extend((0..4).map(|_| byte()));
        frame.extend(IPV4);
    }
    let l4 = frame.len();
    frame.extend([byte(), byte(), 0x12, 0xB7]);
    frame.extend((udp_len as u16).to_be_bytes());
    frame.extend([byte(), byte()]);
    frame.extend([plan.opcode, byte() & 0xC0 | (pad as u8) << 4, 0x7F | byte(), 0xFF, byte(), byte(), byte(), byte() | 1]);
    frame.extend((0..4 + extension + plan.len + pad).map(|_| byte()));
    let icrc = icrc(&frame, plan.ipv6, l3, l4, frame.len());
    frame.extend(icrc);
    frame
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Payload length that the model gives where none can be told; no frame has it.
pub const UNKNOWN: u64 = 0xFFFF;

/// What the front must report of a frame; also where the payload of an accepted one lies.
pub fn model(frame: &[u8], is_bad: bool, promiscuous: bool) -> (RxReport, usize, usize) {
    // The number of its last beat stays at 255.
    let frame_len = if frame.len() > 16_384 { 16_321 + (frame.len() - 1) % 64 } else { frame.len() };
    let mut report = RxReport { frame_len: frame_len.to_bits(), ..Default::default() };
    let verdict = |report: RxReport, verdict: RxVerdict| (RxReport { verdict: (verdict as u8).to_bits(), ..report }, 0, 0);
    let mut padded = frame.to_vec();
    padded.resize(frame.len().max(128), 0);
    let header = offsets(&padded).filter(|(_, ipv6, l3, l4)| {
        let ip = &padded[*l3..];
        let is_udp = if *ipv6 { ip[0] >> 4 == 6 && ip[6] == 17 } else { ip[0] == 0x45 && number(&ip[6..8]) & 0x3FFF == 0 && ip[9] == 17 };
        is_udp && number(&padded[l4 + 2..l4 + 4]) == 4791
    });
    report.is_roce = header.is_some();
    let Some((vlan, ipv6, l3, l4)) = header.filter(|_| !is_bad) else {
        return verdict(report, if is_bad { RxVerdict::BadFrame } else { RxVerdict::NotOurs });
    };
    let address = if ipv6 { padded[l3 + 24..l3 + 40] == IPV6 } else { padded[l3 + 16..l3 + 20] == IPV4 };
    if !promiscuous && (padded[..6] != MAC || !address) {
        return verdict(report, RxVerdict::NotOurs);
    }
    let udp_len = number(&padded[l4 + 4..l4 + 6]) as usize;
    let ip_len = number(&if ipv6 { [padded[l3 + 4], padded[l3 + 5]] } else { [padded[l3 + 2], padded[l3 + 3]] }) as usize;
    let bth = l4 + 8;
    let opcode = padded[bth];
    let flags = padded[bth + 1];
    let pad = usize::from(flags >> 4 & 3);
    let used = 24 + extension(opcode).unwrap_or(0) + pad;
    let payload = udp_len.saturating_sub(used);
    let has_bth = frame.len() >= bth + 12;
    let extension_end = 12 + extension(opcode).unwrap_or(0);
    let has_extension = udp_len >= 12 + extension_end && frame.len() >= bth + extension_end;
    report.has_reth = has_extension && matches!(opcode, 0x06 | 0x0A | 0x0B | 0x0C);
    report.has_aeth = has_extension && matches!(opcode, 0x0D | 0x0F..=0x12);
    report.has_imm = has_extension && matches!(opcode, 0x03 | 0x05 | 0x09 | 0x0B | 0x16 | 0x17 | 0x65);
    // Without its BTH a frame has no opcode, so nobody knows where its payload would begin.
    report.payload_len = if has_bth { payload.to_bits() } else { UNKNOWN.to_bits() };
    if ip_len != udp_len + if ipv6 { 0 } else { 20 } || frame.len() < l4 + udp_len || udp_len < used || payload > 4096 {
        return verdict(report, RxVerdict::Malformed);
    }
    let behind = &padded[bth + 12..];
    report.opcode = opcode.to_bits();
    report.se = flags >> 7 == 1;
    report.migreq = flags >> 6 & 1 == 1;
    report.pad = pad.to_bits();
    report.tver = (flags & 15).to_bits();
    report.pkey = number(&padded[bth + 2..bth + 4]).to_bits();
    report.fecn = padded[bth + 4] >> 7 == 1;
    report.becn = padded[bth + 4] >> 6 & 1 == 1;
    report.dqpn = number(&padded[bth + 5..bth + 8]).to_bits();
    report.ackreq = padded[bth + 8] >> 7 == 1;
    report.psn = number(&padded[bth + 9..bth + 12]).to_bits();
    if report.has_reth {
        report.va = number(&behind[..8]).to_bits();
        report.rkey = number(&behind[8..12]).to_bits();
        report.dma_len = number(&behind[12..16]).to_bits();
    }
    if report.has_aeth {
        report.syndrome = behind[0].to_bits();
        report.msn = number(&behind[1..4]).to_bits();
    }
    let imm = match opcode {
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 => Some(0),
        0x0B => Some(16),
        0x65 => Some(8),
        _ => None,
    };
    report.imm = imm.map_or(0, |at| number(&behind[at..at + 4])).to_bits();
    report.ipv6 = ipv6;
    report.vlan = vlan;
    report.sport = number(&padded[l4..l4 + 2]).to_bits();
    let end = l4 + udp_len - 4;
    report.icrc_ok = frame[end..end + 4] == icrc(frame, ipv6, l3, l4, end);
    let (dqpn, pkey) = (report.dqpn.to_u64(), report.pkey.to_u64());
    if extension(opcode).is_none() || flags & 15 != 0 || pkey & 0x7FFF != 0x7FFF || dqpn == 0 {
        return verdict(report, RxVerdict::Unsupported);
    }
    if !report.icrc_ok {
        return verdict(report, RxVerdict::BadIcrc);
    }
    (report, end - pad - payload, payload)
}

/// Makes fields that do not count equal, so that reports can be compared as a whole.
pub fn essence(mut report: RxReport) -> RxReport {
    let verdict = report.verdict.to_u64();
    if verdict == 3 {
        // Header fields may lie behind the frame's end, but what is there and how long is told.
        let RxReport { verdict, is_roce, has_reth, has_aeth, has_imm, payload_len, frame_len, .. } = report;
        return RxReport { verdict, is_roce, has_reth, has_aeth, has_imm, payload_len, frame_len, ..Default::default() };
    }
    if verdict == 1 || verdict == 2 {
        let RxReport { verdict, is_roce, frame_len, .. } = report;
        return RxReport { verdict, is_roce, frame_len, ..Default::default() };
    }
    if !report.has_reth {
        (report.va, report.rkey, report.dma_len) = Default::default();
    }
    if !report.has_aeth {
        (report.syndrome, report.msn) = Default::default();
    }
    if !report.has_imm {
        report.imm = Default::default();
    }
    report
}

pub fn random_plan(random: &mut Stalls) -> Plan {
    const OPCODES: [u8; 28] = [
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x14, 0x16,
        0x17, 0x64, 0x65, 0x81, 0x15, 0x2A,
    ];
    let bits = random.random();
    Plan {
        vlan: bits & 1 == 1,
        ipv6: bits & 2 == 2,
        opcode: OPCODES[(bits >> 8) as usize % OPCODES.len()],
        len: if bits & 4 == 4 { 0 } else { (bits >> 16) as usize % 150 },
    }
}

/// Damages a frame, or leaves it alone; returns whether the MAC says that it is bad.
pub fn damage(frame: &mut Vec<u8>, random: &mut Stalls) -> bool {
    let mut is_bad = false;
    let bits = random.random();
    match bits % 12 {
        // One bit anywhere; half of them in the headers.
        0 | 1 => {
            let span = if bits & 64 == 64 { frame.len() } else { 60 };
            frame[(bits >> 16) as usize % span] ^= 1 << (bits >> 8 & 7);
        }
        // Cut short, but not within the headers up to UDP.
        2 => frame.truncate(62 + (bits >> 16) as usize % (frame.len() - 57)),
        // Ethernet padding or a trailer.
        3 | 4 => frame.extend((0..(bits >> 16) % 130).map(|_| random.random() as u8)),
        5 => is_bad = bits & 64 == 64,
        // A random byte in the BTH.
        6 => {
            let at = offsets(frame).unwrap().3 + 8 + (bits >> 16) as usize % 12;
            frame[at] = bits as u8;
        }
        _ => (),
    }
    is_bad
}

/// Returns the beats of a frame as the intake hands them on. What lies behind its end is noise.
pub fn beats(frame: &[u8], is_bad: bool, noise: &mut Stalls) -> Vec<RxBeat> {
    let count = frame.len().div_ceil(64);
    let mut padded = frame.to_vec();
    padded.resize_with(64 * count, || noise.random() as u8);
    let layout = offsets(&padded);
    let beat = |(index, chunk): (usize, &[u8])| RxBeat {
        data: pack(chunk),
        bytes: (frame.len() - 64 * index).min(64).to_bits(),
        index: index.min(255).to_bits(),
        first: index == 0,
        second: index == 1,
        last: index + 1 == count,
        bad: is_bad && index + 1 == count,
        vlan: padded[12..14] == [0x81, 0x00],
        ipv4: layout.is_some_and(|(_, ipv6, ..)| !ipv6),
        ipv6: layout.is_some_and(|(_, ipv6, ..)| ipv6),
    };
    padded.chunks(64).enumerate().map(beat).collect()
}

/// A beat without meaning, for clocks without one.
pub fn noise_beat(noise: &mut Stalls) -> RxBeat {
    let bytes: [u8; 64] = core::array::from_fn(|_| noise.random() as u8);
    let bits = noise.random();
    let bit = |index: u32| bits >> index & 1 == 1;
    RxBeat {
        data: pack(&bytes),
        bytes: (bits >> 8 & 63).to_bits(),
        index: (bits >> 16 & 255).to_bits(),
        first: bit(0),
        second: bit(1),
        last: bit(2),
        bad: bit(3),
        vlan: bit(4),
        ipv4: bit(5),
        ipv6: bit(6),
    }
}

/// What the judge reports of a frame with these fields and checks.
pub fn report(verdict: RxVerdict, fields: &RxFields, checks: &RxChecks, icrc_ok: bool) -> RxReport {
    RxReport {
        verdict: (verdict as u8).to_bits(),
        icrc_ok,
        is_roce: checks.is_roce,
        opcode: fields.opcode,
        se: fields.se,
        migreq: fields.migreq,
        pad: fields.pad,
        tver: fields.tver,
        pkey: fields.pkey,
        fecn: fields.fecn,
        becn: fields.becn,
        dqpn: fields.dqpn,
        ackreq: fields.ackreq,
        psn: fields.psn,
        has_reth: fields.has_reth && checks.has_extension,
        va: fields.va,
        rkey: fields.rkey,
        dma_len: fields.dma_len,
        has_aeth: fields.has_aeth && checks.has_extension,
        syndrome: fields.syndrome,
        msn: fields.msn,
        has_imm: fields.has_imm && checks.has_extension,
        imm: fields.imm,
        payload_len: checks.payload_len,
        frame_len: checks.frame_len,
        ipv6: fields.ipv6,
        vlan: fields.vlan,
        sport: fields.sport,
    }
}
