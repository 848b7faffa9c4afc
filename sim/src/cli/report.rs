//! What `verbena send` found, for people and for programs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use verbena_abi::limits::CLOCK_KHZ;
use verbena_abi::wire::write_wire_bytes;
use verbena_sim::bench::limits::WIRE_GBPS;
use verbena_sim::ffi::CLOCK_NS;

/// A transfer.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file, and whether it was chosen by the program.
    pub file: PathBuf,
    pub chosen: bool,
    pub bytes: u64,
    pub sha256_sent: String,
    pub sha256_received: String,
    pub equal: bool,
    pub mtu: u32,
    pub message_bytes: u64,
    pub qps: u32,
    pub depth: u32,
    pub requests: u64,
    /// Frames from A to B, and from B to A.
    pub packets: u64,
    pub acknowledgements: u64,
    /// Clocks from the first doorbell to the last completion.
    pub transfer_clocks: u64,
    pub payload_gbps: f64,
    /// What a wire of 100 Gb/s carries of these messages at most.
    pub limit_gbps: f64,
    pub share_of_limit: f64,
    pub first_write_clocks: u64,
    pub first_write_ns: u64,
    /// Clocks of the whole simulation, and their speed.
    pub clocks: u64,
    pub clocks_per_second: f64,
    pub host_latency_ns: u64,
    pub pcie: &'static str,
    pub seed: u64,
    pub pcap: Option<PathBuf>,
    pub trace: Option<[PathBuf; 2]>,
}

/// Returns the rate in Gb/s of bytes that took some clocks.
pub fn gbps(bytes: u64, clocks: u64) -> f64 {
    if clocks == 0 {
        return 0.0;
    }
    bytes as f64 * 8.0 / (clocks * CLOCK_NS) as f64
}

/// Returns the most that the wire carries, Gb/s of message data.
pub fn limit_gbps(bytes: u64, message: u64, mtu: u64, header_bytes: u64) -> f64 {
    let last = bytes % message;
    let mut wire = (bytes / message) * write_wire_bytes(message, mtu, header_bytes);
    if last != 0 {
        wire += write_wire_bytes(last, mtu, header_bytes);
    }
    if wire == 0 {
        return 0.0;
    }
    WIRE_GBPS * bytes as f64 / wire as f64
}

/// Returns the rate of a simulation.
pub fn per_second(clocks: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    clocks as f64 / time.as_secs_f64()
}

/// Returns the number with its thousands apart.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = if self.chosen { " (no FILE was given)" } else { "" };
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: String| writeln!(f, "  {name:<22} {value}");
        row(f, "file", format!("{}{chosen}", self.file.display()))?;
        row(f, "size", format!("{} bytes", thousands(self.bytes)))?;
        row(f, "SHA-256 at A", self.sha256_sent.clone())?;
        row(f, "SHA-256 at B", format!("{}  {}", self.sha256_received, if self.equal { "equal" } else { "DIFFERENT" }))?;
        let qps = if self.qps == 1 { "1 QP".to_owned() } else { format!("{} QPs", self.qps) };
        row(
            f,
            "requests",
            format!("{} of {} bytes over {qps}, path MTU {}", thousands(self.requests), thousands(self.message_bytes), self.mtu),
        )?;
        row(f, "packets", format!("{} there, {} back", thousands(self.packets), thousands(self.acknowledgements)))?;
        row(
            f,
            "transfer",
            format!("{} clocks, {:.2} Gb/s of payload at {} MHz", thousands(self.transfer_clocks), self.payload_gbps, CLOCK_KHZ / 1000),
        )?;
        row(
            f,
            "share of the wire",
            format!("{:.1} % of the {:.2} Gb/s that 100 Gb/s can carry", 100.0 * self.share_of_limit, self.limit_gbps),
        )?;
        row(
            f,
            "first write",
            format!("{} clocks, {} ns from doorbell to completion", thousands(self.first_write_clocks), thousands(self.first_write_ns)),
        )?;
        row(f, "simulated", format!("{} clocks, {} a second", thousands(self.clocks), thousands(self.clocks_per_second as u64)))?;
        if let Some(pcap) = &self.pcap {
            row(f, "capture", pcap.display().to_string())?;
        }
        if let Some([first, second]) = &self.trace {
            row(f, "signals", format!("{} (A), {} (B)", first.display(), second.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_published_one() {
        assert!((limit_gbps(1 << 30, 1 << 20, 4096, 54) - 98.0).abs() < 0.05);
        assert!((limit_gbps(64 << 20, 64, 4096, 54) - 39.5).abs() < 0.05);
        assert_eq!(limit_gbps(0, 64, 4096, 54), 0.0);
        assert_eq!(gbps(50, 1), 100.0);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(123_456), "123,456");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
