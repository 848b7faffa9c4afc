//! What wire and PCIe allow at most.

use verbena_abi::limits::{FETCH_BATCH, INLINE_ONE_UNIT};
use verbena_abi::queue::{Cqe, SQ_UNIT};
use verbena_abi::wire::{write_wire_bytes, Bth};

use crate::pcie::{PcieConfig, COMPLETION_OVERHEAD, REQUEST_OVERHEAD};

/// Bits per second of the wire, in thousands of millions.
pub const WIRE_GBPS: f64 = 100.0;
/// Bytes of an untagged IPv4 frame before its BTH.
const NETWORK_BYTES: u64 = 14 + 20 + 8;
/// Bytes of a frame before the RETH.
pub const HEADER_BYTES: u64 = NETWORK_BYTES + size_of::<Bth>() as u64;

/// What keeps a point from being faster, if the card does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// 100 Gb/s with all overheads.
    Wire,
    /// The PCIe link of the sending or of the receiving host.
    Pcie,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Bytes of a message.
    pub message: u64,
    /// Path MTU, bytes.
    pub mtu: u64,
    /// One request in so many makes a completion; 0: none.
    pub signal_every: u64,
    /// Both ends send.
    pub both: bool,
    /// Messages are inline data of their requests.
    pub inline: bool,
}

/// Returns the goodput that 100 Gb/s carry at most, Gb/s, for writes of `message` bytes.
pub fn wire_gbps(message: u64, mtu: u64) -> f64 {
    WIRE_GBPS * message as f64 / write_wire_bytes(message, mtu, HEADER_BYTES) as f64
}

/// Returns the goodput that PCIe carries at most, Gb/s, for writes from aligned memory.
///
/// Counted for each message, with the overheads of their TLPs: fetching the request in batches, reading the payload packet by
/// packet (whole lines, or the power of two of one that holds it; not at all if it is inline), one completion entry in
/// `signal_every`; at the peer, writing the payload. With `both` directions at once a link
/// carries the parts of both ends. Flow control is not counted, as the model of the link has none.
pub fn pcie_gbps(traffic: &Traffic, pcie: &PcieConfig) -> f64 {
    let &Traffic { message, mtu, signal_every, both, inline } = traffic;
    let tlps = |bytes: u64, each: u64| bytes.div_ceil(each);
    let packets = message / mtu;
    let last = message % mtu;
    let of_packets = |cost: &dyn Fn(u64) -> u64| packets * cost(mtu) + if last == 0 { 0 } else { cost(last) };

    let unit = if inline && message > INLINE_ONE_UNIT as u64 { 2 * SQ_UNIT } else { SQ_UNIT } as u64;
    let batch = FETCH_BATCH as u64;
    let fetch_down = unit as f64 + (tlps(batch * unit, pcie.max_payload) * COMPLETION_OVERHEAD) as f64 / batch as f64;
    let fetch_up = (tlps(batch * unit, pcie.max_read_request) * REQUEST_OVERHEAD) as f64 / batch as f64;
    let read = |bytes: u64| if bytes <= 64 { bytes.next_power_of_two().max(4) } else { bytes.next_multiple_of(64) };
    let (data_down, data_up) = if inline {
        (0.0, 0.0)
    } else {
        let down = of_packets(&|bytes| read(bytes) + tlps(bytes, pcie.max_payload) * COMPLETION_OVERHEAD);
        (down as f64, of_packets(&|bytes| tlps(bytes, pcie.max_read_request) * REQUEST_OVERHEAD) as f64)
    };
    let entry_up = if signal_every == 0 { 0.0 } else { (size_of::<Cqe>() as u64 + REQUEST_OVERHEAD) as f64 / signal_every as f64 };
    let payload_up = of_packets(&|bytes| bytes.next_multiple_of(4) + tlps(bytes, pcie.max_payload) * REQUEST_OVERHEAD) as f64;

    let down = fetch_down + data_down;
    let up = fetch_up + data_up + entry_up;
    let busiest = if both { down.max(up + payload_up) } else { down.max(up).max(payload_up) };
    pcie.megabytes_per_s as f64 * 8.0 / 1000.0 * message as f64 / busiest
}

/// Returns the lower of both limits, Gb/s, and which one it is.
pub fn limit(traffic: &Traffic, pcie: &PcieConfig) -> (f64, Bound) {
    let (wire, pcie) = (wire_gbps(traffic.message, traffic.mtu), pcie_gbps(traffic, pcie));
    if wire <= pcie {
        (wire, Bound::Wire)
    } else {
        (pcie, Bound::Pcie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_wire_are_those_of_the_design() {
        for (message, mtu, gbps) in [(64, 4096, 39.5), (256, 4096, 72.3), (1024, 1024, 91.3), (4096, 4096, 97.7), (1 << 20, 4096, 98.0)] {
            assert!((wire_gbps(message, mtu) - gbps).abs() < 0.06, "{message}: {}", wire_gbps(message, mtu));
        }
        // 117.9 M messages of 8 bytes a second.
        assert!((wire_gbps(8, 4096) / 64.0 * 1000.0 - 117.9).abs() < 0.05);
    }

    fn traffic(message: u64, both: bool) -> Traffic {
        Traffic { message, mtu: 4096, signal_every: 16, both, inline: false }
    }

    #[test]
    fn pcie_bytes_are_those_counted_by_hand() {
        let pcie = PcieConfig::GEN3_X16;
        // Down: 64 + 2 * 20 / 8 of the fetch, 64 + 20 of the data.
        let gbps = 15.754 * 8.0 * 64.0 / 153.0;
        assert!((pcie_gbps(&traffic(64, false), &pcie) - gbps).abs() < 1e-9);
        // Up: 24 / 8 of the fetch, 8 * 24 of the data, 56 / 16 of the entry; 4096 + 16 * 24 of the peer's payload.
        let gbps = 15.754 * 8.0 * 4096.0 / (3.0 + 192.0 + 3.5 + 4480.0);
        assert!((pcie_gbps(&traffic(4096, true), &pcie) - gbps).abs() < 1e-9);
        // Down: 128 + 4 * 20 / 8 of the fetch, which brings the data too; up, at the peer: 64 + 24 of the payload.
        let gbps = 15.754 * 8.0 * 64.0 / 138.0;
        assert!((pcie_gbps(&Traffic { inline: true, ..traffic(64, false) }, &pcie) - gbps).abs() < 1e-9);
    }

    #[test]
    fn a_narrow_link_is_what_bounds() {
        let narrow = PcieConfig { megabytes_per_s: 8_000, ..PcieConfig::GEN3_X16 };
        assert_eq!(limit(&traffic(65536, false), &PcieConfig::GEN3_X16).1, Bound::Wire);
        assert_eq!(limit(&traffic(65536, false), &narrow).1, Bound::Pcie);
    }
}
