//! Values that several sub-commands take.

use std::panic::{self, AssertUnwindSafe};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use verbena_abi::limits::{MAX_MESSAGE, MAX_MTU};
use verbena_sim::{PcieConfig, World};

/// PCIe between card and host.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Pcie {
    /// 15.75 GB/s each way
    #[value(name = "gen3x16")]
    Gen3x16,
    /// 15.75 GB/s each way
    #[value(name = "gen4x8")]
    Gen4x8,
    /// 31.5 GB/s each way
    #[value(name = "gen4x16")]
    Gen4x16,
}

impl Pcie {
    pub fn config(self) -> (&'static str, PcieConfig) {
        match self {
            Self::Gen3x16 => ("gen3x16", PcieConfig::GEN3_X16),
            Self::Gen4x8 => ("gen4x8", PcieConfig::GEN4_X8),
            Self::Gen4x16 => ("gen4x16", PcieConfig::GEN4_X16),
        }
    }
}

pub fn parse_mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse::<u32>().map_err(|error| error.to_string())?;
    if mtu.is_power_of_two() && (256..=MAX_MTU as u32).contains(&mtu) {
        Ok(mtu)
    } else {
        Err("RoCE has path MTUs of 256, 512, 1024, 2048 and 4096 bytes".into())
    }
}

pub fn parse_size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        other => return Err(format!("`{other}` is no unit; there are KiB, MiB and GiB")),
    };
    let number = digits.parse::<u64>().map_err(|error| error.to_string())?;
    match number.checked_mul(unit) {
        Some(size) if (1..=u64::from(MAX_MESSAGE)).contains(&size) => Ok(size as u32),
        _ => Err(format!("a message has 1 to {MAX_MESSAGE} bytes")),
    }
}

/// Runs `f`. The driver can't pass on what stops the simulation, which comes as a panic; it is made an error again.
pub fn without_panic<T>(world: &World, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(f));
    panic::set_hook(hook);
    match (outcome, world.fault()) {
        (Ok(outcome), _) => outcome,
        (Err(_), Some(fault)) => Err(fault).context("the simulation is stopped"),
        (Err(payload), None) => {
            let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
            bail!("internal error: {}", text.unwrap_or("unknown"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("1"), Ok(1));
        assert_eq!(parse_size("2GiB"), Ok(1 << 31));
        for bad in ["", "0", "3GiB", "64kB", "KiB", "-1", "99999999999999999999"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_mtus_of_roce_exist() {
        for mtu in [256, 512, 1024, 2048, 4096] {
            assert_eq!(parse_mtu(&mtu.to_string()), Ok(mtu));
        }
        for bad in ["0", "128", "1500", "8192", "x"] {
            assert!(parse_mtu(bad).is_err(), "{bad}");
        }
    }
}
