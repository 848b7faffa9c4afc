//! `verbena replay`: feeds a capture to the verilated receive parser and ICRC check.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{json, Map, Value};
use verbena_abi::wire::{Opcode, RxVerdict, CNP, UD_SEND_ONLY, UD_SEND_ONLY_IMM};
use verbena_sim::pcap::{self, Recorded};
use verbena_sim::rx_front::{Report, RxFront};

/// Frames below which progress is not worth a line.
const MANY_FRAMES: usize = 5_000;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Capture to read: pcap or pcapng, Ethernet
    #[arg(value_name = "CAPTURE")]
    input: PathBuf,
    /// Print one JSON object a frame, one a line
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let frames = pcap::read(&arguments.input).with_context(|| format!("cannot read {}", arguments.input.display()))?;
    let bar = if frames.len() >= MANY_FRAMES && io::stderr().is_terminal() && !io::stdout().is_terminal() {
        ProgressBar::new(frames.len() as u64).with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} frames, {eta} left")?)
    } else {
        ProgressBar::hidden()
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut front = RxFront::new();
    let mut shown = 0;
    let mut accepted = 0;
    let mut show = |report: Report| -> Result<()> {
        accepted += usize::from(report.verdict == RxVerdict::Accepted);
        let frame = &frames[shown];
        if arguments.json {
            writeln!(out, "{}", object(shown, frame, &report))?;
        } else {
            writeln!(out, "{}", line(shown, frame, &report))?;
        }
        shown += 1;
        bar.inc(1);
        Ok(())
    };
    for (index, frame) in frames.iter().enumerate() {
        front.feed(&frame.bytes).with_context(|| format!("frame {index}"))?;
        while let Some(report) = front.poll() {
            show(report)?;
        }
    }
    for _ in front.reported()..frames.len() as u64 {
        let report = front.wait().with_context(|| format!("of {} frames", frames.len()))?;
        show(report)?;
    }
    bar.finish_and_clear();
    if !arguments.json {
        writeln!(out, "{} frames, {accepted} accepted, {} clocks", frames.len(), front.clock())?;
    }
    Ok(out.flush()?)
}

/// Returns the name of an opcode, spelled as in the test vectors.
fn opcode_name(opcode: u8) -> String {
    match opcode {
        UD_SEND_ONLY => return "UD_SEND_ONLY".into(),
        UD_SEND_ONLY_IMM => return "UD_SEND_ONLY_IMM".into(),
        CNP => return "CNP".into(),
        _ => {}
    }
    let known = Opcode::try_from(opcode).ok().and_then(|code| Opcode::ALL.iter().find(|(other, ..)| *other == code));
    let Some((_, name, _)) = known else { return format!("OP_{opcode:02X}") };
    let mut words = String::from("RC");
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            words.push('_');
        }
        words.push(letter.to_ascii_uppercase());
    }
    words.replace("RESPONSE", "RESP").replace("INVALIDATE", "INV")
}

/// Tells whether the four bytes behind the BTH are a key to invalidate, not immediate data.
fn is_invalidate(opcode: u8) -> bool {
    matches!(Opcode::try_from(opcode), Ok(Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate))
}

fn verdict_name(verdict: RxVerdict) -> &'static str {
    match verdict {
        RxVerdict::Accepted => "accepted",
        RxVerdict::BadFrame => "bad_frame",
        RxVerdict::NotOurs => "not_ours",
        RxVerdict::Malformed => "malformed",
        RxVerdict::Unsupported => "unsupported",
        RxVerdict::BadIcrc => "bad_icrc",
        RxVerdict::Overflow => "overflow",
    }
}

/// Returns what became of the frame, in words.
fn verdict_text(verdict: RxVerdict) -> &'static str {
    match verdict {
        RxVerdict::Accepted => "accepted",
        RxVerdict::BadFrame => "dropped: marked bad by the MAC",
        RxVerdict::NotOurs => "dropped: not RoCEv2, or for another station",
        RxVerdict::Malformed => "dropped: malformed",
        RxVerdict::Unsupported => "dropped: opcode, version or P_Key not supported",
        RxVerdict::BadIcrc => "dropped: wrong ICRC",
        RxVerdict::Overflow => "dropped: no room",
    }
}

/// Returns a report with the names of the test vectors' manifest where it has them.
fn object(index: usize, frame: &Recorded, report: &Report) -> Value {
    let seen = &report.fields;
    let mut fields = Map::new();
    if seen.is_roce {
        fields.insert("ip".into(), json!({ "version": if seen.ipv6 { 6 } else { 4 } }));
        fields.insert("udp".into(), json!({ "sport": seen.sport }));
        let bth = json!({
            "opcode": seen.opcode, "name": opcode_name(seen.opcode),
            "se": u8::from(seen.se), "migreq": u8::from(seen.migreq), "pad": seen.pad_count, "tver": seen.tver, "pkey": seen.pkey,
            "fecn": u8::from(seen.fecn), "becn": u8::from(seen.becn), "dqpn": seen.dqpn, "ackreq": u8::from(seen.ackreq), "psn": seen.psn,
        });
        fields.insert("bth".into(), bth);
        if seen.has_reth {
            let reth = json!({ "va": format!("{:#018x}", seen.reth_va), "rkey": seen.reth_rkey, "dmalen": seen.reth_len });
            fields.insert("reth".into(), reth);
        }
        if seen.has_aeth {
            fields.insert("aeth".into(), json!({ "syndrome": seen.aeth_syndrome, "msn": seen.aeth_msn }));
        }
        // The same four bytes, and the same port.
        match (seen.has_imm, is_invalidate(seen.opcode)) {
            (true, false) => fields.insert("immdt".into(), json!({ "imm": seen.imm })),
            (true, true) => fields.insert("ieth".into(), json!({ "rkey": seen.imm })),
            (false, _) => None,
        };
        fields.insert("payload".into(), json!({ "length": seen.payload_len }));
        fields.insert("icrc".into(), json!({ "ok": seen.icrc_ok }));
    }
    json!({
        "index": index,
        "time_ns": frame.time.as_nanos() as u64,
        "length": frame.bytes.len(),
        "cut": frame.original_len as usize > frame.bytes.len(),
        "roce": seen.is_roce,
        "vlan": seen.vlan,
        "verdict": verdict_name(report.verdict),
        "fields": fields,
    })
}

fn line(index: usize, frame: &Recorded, report: &Report) -> String {
    use std::fmt::Write;
    let seen = &report.fields;
    let mut text = format!("{index:>5}  {:>4} B  ", frame.bytes.len());
    if !seen.is_roce {
        return text + verdict_text(report.verdict);
    }
    let name = opcode_name(seen.opcode);
    // Writing to a string does not fail.
    let _ = write!(text, "{:#04x} {name:<24} QPN {:#08x}  PSN {:#08x}", seen.opcode, seen.dqpn, seen.psn);
    let _ = write!(text, "  {}  pad {}", if seen.ackreq { "AckReq" } else { "      " }, seen.pad_count);
    if seen.has_reth {
        let _ = write!(text, "  RETH VA {:#018x} R_Key {:#010x} length {}", seen.reth_va, seen.reth_rkey, seen.reth_len);
    }
    if seen.has_aeth {
        let _ = write!(text, "  AETH syndrome {:#04x} MSN {}", seen.aeth_syndrome, seen.aeth_msn);
    }
    if seen.has_imm {
        let name = if is_invalidate(seen.opcode) { "invalidate R_Key" } else { "immediate" };
        let _ = write!(text, "  {name} {:#010x}", seen.imm);
    }
    let icrc = if seen.icrc_ok { "good" } else { "bad" };
    let _ = write!(text, "  payload {} B  ICRC {icrc}  {}", seen.payload_len, verdict_text(report.verdict));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_spelled_as_in_the_vectors() {
        let names = [(0x0A, "RC_WRITE_ONLY"), (0x0E, "RC_READ_RESP_MIDDLE"), (0x17, "RC_SEND_ONLY_INV"), (0x81, "CNP"), (0x4A, "OP_4A")];
        for (opcode, name) in names {
            assert_eq!(opcode_name(opcode), name);
        }
    }
}
