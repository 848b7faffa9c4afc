//! Frames of a capture, taken apart by `etherparse` and slices, and an ICRC of its own: nothing here is shared with the product.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;

/// UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the message.
    pub len_bytes: u32,
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Syndrome.
    pub syndrome: u8,
    /// Message sequence number.
    pub msn: u32,
}

/// A RoCEv2 frame.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The frame, without FCS.
    pub frame: Vec<u8>,
    /// Card that sent it, by its station address.
    pub from: usize,
    /// 802.1Q identifier.
    pub vlan: Option<u16>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// The IPv4 header checksum is right; also for IPv6.
    pub is_checksum_right: bool,
    /// IP and UDP lengths agree with each other, and with the frame.
    pub are_lengths_right: bool,
    /// UDP source port.
    pub source_port: u16,
    /// BTH opcode.
    pub opcode: u8,
    /// BTH pad count.
    pub pad: u8,
    /// Destination QPN.
    pub qpn: u32,
    /// PSN.
    pub psn: u32,
    /// An acknowledgement is asked for.
    pub ack_requested: bool,
    /// RETH, of WRITE First and Only.
    pub reth: Option<Reth>,
    /// AETH, of acknowledgements.
    pub aeth: Option<Aeth>,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// The ICRC is right.
    pub is_icrc_right: bool,
}

impl Packet {
    /// Tells whether it is a NAK.
    pub fn is_nak(&self) -> bool {
        self.aeth.is_some_and(|aeth| aeth.syndrome >> 5 == 3)
    }
}

/// Reads all frames of a capture and decodes those that are RoCEv2. Panics with the number of one that can't be taken apart.
pub fn read(path: &Path) -> Vec<Packet> {
    let frames = frames(path);
    frames.iter().enumerate().filter_map(|(index, frame)| decode(frame).unwrap_or_else(|error| panic!("frame {index}: {error}"))).collect()
}

/// Reads all frames of a pcap file.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = PcapReader::new(BufReader::new(file)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap_or_else(|error| panic!("{}: frame {}: {error}", path.display(), frames.len())).data.into_owned());
    }
    frames
}

/// Returns the UDP payload, the bytes from the IP header to the end of the ICRC, and what else the layers below the BTH say.
struct Layers<'a> {
    sliced: SlicedPacket<'a>,
    /// From the IP header to the end of the UDP datagram.
    datagram: &'a [u8],
    header_len: usize,
    udp_payload: &'a [u8],
}

fn layers(frame: &[u8]) -> Result<Option<Layers<'_>>, String> {
    let Ok(sliced) = SlicedPacket::from_ethernet(frame) else { return Ok(None) };
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return Ok(None) };
    if udp.destination_port() != ROCE_PORT {
        return Ok(None);
    }
    let header_len = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => ip.header().slice().len(),
        Some(NetSlice::Ipv6(ip)) => ip.header().slice().len(),
        _ => return Err("UDP without IP".into()),
    };
    let start = 14 + 4 * sliced.link_exts.len();
    let end = start + header_len + usize::from(udp.length());
    let datagram = frame.get(start..end).ok_or("the UDP length reaches beyond the frame")?;
    let udp_payload = datagram.get(header_len + 8..).ok_or("no UDP header")?;
    Ok(Some(Layers { sliced, datagram, header_len, udp_payload }))
}

/// Tells whether the ICRC of a RoCEv2 frame is right; nothing for other frames.
pub fn is_icrc_right(frame: &[u8]) -> Option<bool> {
    let layers = layers(frame).ok()??;
    let (covered, found) = layers.datagram.split_last_chunk::<4>()?;
    (covered.len() >= layers.header_len + 8 + 12).then(|| icrc(covered, layers.header_len) == *found)
}

/// Returns the ICRC in the order of the wire: CRC-32 over eight bytes of ones and the datagram, in which what may change on
/// the way is ones (IBTA annex A17).
fn icrc(covered: &[u8], header_len: usize) -> [u8; 4] {
    let mut masked = covered.to_vec();
    if masked[0] >> 4 == 4 {
        // Type of service, time to live, checksum.
        for at in [1, 8, 10, 11] {
            masked[at] = 0xFF;
        }
    } else {
        // Traffic class and flow label, hop limit.
        masked[0] |= 0x0F;
        masked[1..4].fill(0xFF);
        masked[7] = 0xFF;
    }
    // UDP checksum; the byte in front of the destination QPN.
    masked[header_len + 6..header_len + 8].fill(0xFF);
    masked[header_len + 8 + 4] = 0xFF;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xFF; 8]);
    crc.update(&masked);
    crc.finalize().to_le_bytes()
}

/// Takes a frame apart; nothing if it is not RoCEv2.
pub fn decode(frame: &[u8]) -> Result<Option<Packet>, String> {
    let Some(layers) = layers(frame)? else { return Ok(None) };
    let ipv6 = matches!(layers.sliced.net, Some(NetSlice::Ipv6(_)));
    let (is_checksum_right, ip_total) = match &layers.sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            (header.header_checksum == header.calc_header_checksum(), usize::from(header.total_len))
        }
        Some(NetSlice::Ipv6(ip)) => (true, 40 + usize::from(ip.header().payload_length())),
        _ => return Err("no IP header".into()),
    };
    let Some(TransportSlice::Udp(udp)) = &layers.sliced.transport else { return Err("no UDP header".into()) };
    let bytes = layers.udp_payload;
    let (covered, _) = bytes.split_last_chunk::<4>().ok_or("no ICRC")?;
    let (bth, mut rest) = covered.split_first_chunk::<12>().ok_or("no BTH")?;
    let word = |at: usize| u32::from_be_bytes([bth[at], bth[at + 1], bth[at + 2], bth[at + 3]]);
    let (opcode, pad) = (bth[0], bth[1] >> 4 & 3);

    let mut reth = None;
    if matches!(opcode, 0x06 | 0x0A | 0x0B | 0x0C) {
        let (header, tail) = rest.split_first_chunk::<16>().ok_or("no RETH")?;
        let half = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        reth = Some(Reth { va: u64::from(half(0)) << 32 | u64::from(half(4)), rkey: half(8), len_bytes: half(12) });
        rest = tail;
    }
    let mut aeth = None;
    if matches!(opcode, 0x0D | 0x0F | 0x10 | 0x11) {
        let (header, tail) = rest.split_first_chunk::<4>().ok_or("no AETH")?;
        aeth = Some(Aeth { syndrome: header[0], msn: u32::from_be_bytes([0, header[1], header[2], header[3]]) });
        rest = tail;
    }
    let payload = rest.get(..rest.len().wrapping_sub(pad.into())).ok_or("more pad than payload")?;
    let start = 14 + 4 * layers.sliced.link_exts.len();
    Ok(Some(Packet {
        frame: frame.to_vec(),
        from: usize::from(frame[11].wrapping_sub(1)),
        vlan: layers.sliced.vlan_ids().first().map(|id| id.value()),
        ipv6,
        is_checksum_right,
        are_lengths_right: ip_total == layers.datagram.len() && frame.len() == start + ip_total,
        source_port: udp.source_port(),
        opcode,
        pad,
        qpn: word(4) & 0xFF_FFFF,
        psn: word(8) & 0xFF_FFFF,
        ack_requested: word(8) >> 31 == 1,
        reth,
        aeth,
        payload: payload.to_vec(),
        is_icrc_right: is_icrc_right(frame) == Some(true),
    }))
}
