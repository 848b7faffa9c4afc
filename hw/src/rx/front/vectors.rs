//! Frames of the vectors in `tests/vectors`, which other tools made.
//!
//! A slice that RustHDL's simulator does in seconds; `verbena replay` runs all of them through the
//! verilated front.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use serde_json::Value;

use super::*;
use crate::prim::pack;
use crate::testing::{Bench, Stalls};
use verbena_abi::wire::RxVerdict;

/// Frames taken from each group and expectation.
const PER_KIND: usize = 10;

/// A frame, and what the manifest says of it.
struct Frame {
    bytes: Vec<u8>,
    entry: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors")
}

/// The bytes of a frame, from its capture.
fn bytes_of(entry: &Value) -> Vec<u8> {
    let path = folder().join(entry["pcap"].as_str().expect("the name of a capture"));
    let index = entry["index"].as_u64().expect("a place in the capture");
    let mut reader = PcapReader::new(File::open(&path).expect("the capture is there")).expect("a capture");
    for _ in 0..index {
        reader.next_packet().expect("as many frames as the manifest says").expect("a frame");
    }
    reader.next_packet().expect("as many frames as the manifest says").expect("a frame").data.into_owned()
}

/// A slice of the vectors: short frames of every kind, evenly spread.
fn frames() -> Vec<Frame> {
    let manifest = fs::read_to_string(folder().join("manifest.json")).expect("the manifest is there");
    let manifest: Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let mut kinds = std::collections::BTreeMap::<(String, String), Vec<&Value>>::new();
    for entry in manifest["frames"].as_array().expect("the manifest has frames") {
        if entry["length"].as_u64() < Some(700) {
            let key = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
            kinds.entry((key("group"), key("expect"))).or_default().push(entry);
        }
    }
    let spread = |entries: Vec<&Value>| {
        let take = PER_KIND.min(entries.len());
        (0..take).map(|i| entries[i * entries.len() / take].clone()).collect::<Vec<_>>()
    };
    kinds.into_values().flat_map(spread).map(|entry| Frame { bytes: bytes_of(&entry), entry }).collect()
}

/// A number of the manifest, written as a number or as hexadecimal text.
fn number(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal"),
        None => value.as_u64().expect("a number"),
    }
}

/// Compares the report of a frame that is let through, or not only because of its ICRC, with the manifest.
fn check_fields(report: &RxReport, fields: &Value, id: &str) {
    let flag = |bit: bool| u64::from(bit);
    let bth = &fields["bth"];
    for (name, got) in [
        ("opcode", report.opcode.to_u64()),
        ("se", flag(report.se)),
        ("migreq", flag(report.migreq)),
        ("pad", report.pad.to_u64()),
        ("tver", report.tver.to_u64()),
        ("pkey", report.pkey.to_u64()),
        ("fecn", flag(report.fecn)),
        ("becn", flag(report.becn)),
        ("dqpn", report.dqpn.to_u64()),
        ("ackreq", flag(report.ackreq)),
        ("psn", report.psn.to_u64()),
    ] {
        assert_eq!(number(&bth[name]), got, "{id}: {name}");
    }
    assert_eq!(report.has_reth, fields.get("reth").is_some(), "{id}: RETH");
    if let Some(reth) = fields.get("reth") {
        let expected = (number(&reth["va"]), number(&reth["rkey"]), number(&reth["dmalen"]));
        assert_eq!((report.va.to_u64(), report.rkey.to_u64(), report.dma_len.to_u64()), expected, "{id}: RETH");
    }
    if let Some(atomic) = fields.get("atomiceth") {
        let expected = (number(&atomic["va"]), number(&atomic["rkey"]));
        assert_eq!((report.va.to_u64(), report.rkey.to_u64()), expected, "{id}: AtomicETH");
    }
    assert_eq!(report.has_aeth, fields.get("aeth").is_some(), "{id}: AETH");
    if let Some(aeth) = fields.get("aeth") {
        let expected = (number(&aeth["syndrome"]), number(&aeth["msn"]));
        assert_eq!((report.syndrome.to_u64(), report.msn.to_u64()), expected, "{id}: AETH");
    }
    let imm = fields.get("immdt").map(|immdt| &immdt["imm"]).or(fields.get("ieth").map(|ieth| &ieth["rkey"]));
    assert_eq!(report.has_imm, imm.is_some(), "{id}: immediate");
    if let Some(imm) = imm {
        assert_eq!(report.imm.to_u64(), number(imm), "{id}: immediate");
    }
    assert_eq!(report.payload_len.to_u64(), number(&fields["payload"]["length"]), "{id}: payload");
    assert_eq!(report.ipv6, number(&fields["ip"]["version"]) == 6, "{id}: IP version");
    assert_eq!(report.vlan, !fields["eth"]["vlan"].as_array().unwrap().is_empty(), "{id}: tag");
    assert_eq!(report.sport.to_u64(), number(&fields["udp"]["sport"]), "{id}: source port");
}

#[test]
fn frames_of_other_tools_are_parsed_and_judged_as_the_manifest_says() {
    let frames = frames();
    assert!(frames.len() > 120, "only {} frames", frames.len());
    let mut bench = Bench::new("rx_front", RxFront::<7, 8>::default(), |uut| &mut uut.clock);
    bench.uut.head.ready.next = true;
    bench.uut.line.ready.next = true;
    let mut stalls = Stalls::new(31);
    for Frame { bytes, entry } in &frames {
        let (id, expect) = (entry["id"].as_str().unwrap(), entry["expect"].as_str().unwrap());
        let fields = &entry["fields"];
        // The station that the frame is for.
        bench.uut.mac.next = pack(&bytes[..6]);
        let l3 = if bytes[12] == 0x81 { 18 } else { 14 };
        if bytes[l3] >> 4 == 6 {
            bench.uut.ipv6.next = pack(&bytes[l3 + 24..l3 + 40]);
        } else {
            bench.uut.ipv4.next = pack(&bytes[l3 + 16..l3 + 20]);
        }
        let count = bytes.len().div_ceil(64);
        let mut beats = bytes.chunks(64).enumerate();
        let mut report = None;
        let mut left = 14;
        while left > 0 {
            bench.uut.tvalid.next = false;
            if beats.len() == 0 {
                left -= 1;
            } else if stalls.go() {
                let (index, chunk) = beats.next().unwrap();
                bench.uut.tvalid.next = true;
                bench.uut.tdata.next = pack(chunk);
                bench.uut.tkeep.next = (u64::MAX >> (64 - chunk.len())).to_bits();
                bench.uut.tlast.next = index + 1 == count;
            }
            bench.settle();
            if bench.uut.report_valid.val() {
                assert!(report.replace(bench.uut.report.val()).is_none(), "{id}: two reports");
            }
            bench.edge();
        }
        let report = report.unwrap_or_else(|| panic!("{id}: no report"));
        let is_accepted = report.verdict.to_u64() == RxVerdict::Accepted as u64;
        match expect {
            "accept" => assert!(is_accepted, "{id}: verdict {}", report.verdict.to_u64()),
            "drop_silently" => assert!(!is_accepted, "{id}"),
            _ if expect.starts_with("nak_") && !expect.contains("_or_") => assert!(is_accepted, "{id}"),
            _ => (),
        }
        assert!(report.is_roce, "{id}");
        if !entry["icrc_valid"].as_bool().unwrap() {
            assert!(!is_accepted && !report.icrc_ok, "{id}");
        }
        if is_accepted {
            assert!(report.icrc_ok, "{id}");
            check_fields(&report, fields, id);
        }
    }
    bench.finish();
}
