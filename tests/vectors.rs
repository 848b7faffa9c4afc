//! Frames that we did not make, through the verilated receive parser and ICRC check: fields, ICRC and verdict are those of the manifest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use verbena_abi::wire::RxVerdict;
use verbena_sim::rx_front::{Report, RxFront};
use verbena_tests::capture::{self, is_icrc_right};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// Returns what the parser says of each frame.
fn replay(frames: &[Vec<u8>]) -> Vec<Report> {
    let mut front = RxFront::new();
    let mut reports = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        front.feed(frame).unwrap_or_else(|fault| panic!("frame {index}: {fault}"));
        while let Some(report) = front.poll() {
            reports.push(report);
        }
    }
    while reports.len() < frames.len() {
        reports.push(front.wait().unwrap_or_else(|fault| panic!("report {} of {}: {fault}", reports.len(), frames.len())));
    }
    assert_eq!(front.reported(), frames.len() as u64, "one report a frame");
    reports
}

/// Returns a report as the manifest would put it, as far as the parser tells.
fn fields(report: &Report) -> BTreeMap<String, Value> {
    let seen = &report.fields;
    let mut fields = BTreeMap::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("ip.version", json!(if seen.ipv6 { 6 } else { 4 }));
    put("udp.sport", json!(seen.sport));
    put("bth.opcode", json!(seen.opcode));
    put("bth.se", json!(u8::from(seen.se)));
    put("bth.migreq", json!(u8::from(seen.migreq)));
    put("bth.pad", json!(seen.pad_count));
    put("bth.tver", json!(seen.tver));
    put("bth.pkey", json!(seen.pkey));
    put("bth.fecn", json!(u8::from(seen.fecn)));
    put("bth.becn", json!(u8::from(seen.becn)));
    put("bth.dqpn", json!(seen.dqpn));
    put("bth.ackreq", json!(u8::from(seen.ackreq)));
    put("bth.psn", json!(seen.psn));
    if seen.has_reth {
        put("reth.va", json!(format!("{:#018x}", seen.reth_va)));
        put("reth.rkey", json!(seen.reth_rkey));
        put("reth.dmalen", json!(seen.reth_len));
    }
    if seen.has_aeth {
        put("aeth.syndrome", json!(seen.aeth_syndrome));
        put("aeth.msn", json!(seen.aeth_msn));
    }
    if seen.has_imm {
        // Immediate data and the key to invalidate are the same four bytes; the opcode tells which.
        put(if matches!(seen.opcode, 0x16 | 0x17) { "ieth.rkey" } else { "immdt.imm" }, json!(seen.imm));
    }
    put("payload.length", json!(seen.payload_len));
    fields
}

/// Returns the fields of a frame of the manifest that the parser tells of.
fn expected(frame: &Value) -> BTreeMap<String, Value> {
    let names: &[(&str, &[&str])] = &[
        ("ip", &["version"]),
        ("udp", &["sport"]),
        ("bth", &["opcode", "se", "migreq", "pad", "tver", "pkey", "fecn", "becn", "dqpn", "ackreq", "psn"]),
        ("reth", &["va", "rkey", "dmalen"]),
        ("aeth", &["syndrome", "msn"]),
        ("immdt", &["imm"]),
        ("ieth", &["rkey"]),
        ("payload", &["length"]),
    ];
    let mut fields = BTreeMap::new();
    for (header, names) in names {
        if let Some(found) = frame["fields"].get(header) {
            fields.extend(names.iter().map(|name| (format!("{header}.{name}"), found[name].clone())));
        }
    }
    fields
}

#[test]
fn every_frame_of_the_manifest_is_seen_as_it_says() {
    let manifest = fs::read_to_string(folder().join("manifest.json")).expect("the manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let mut files: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for frame in manifest["frames"].as_array().expect("frames") {
        files.entry(frame["pcap"].as_str().expect("a file name")).or_default().push(frame);
    }
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (file, entries) in files {
        let frames = capture::frames(&folder().join(file));
        assert_eq!(frames.len(), entries.len(), "frames of {file}");
        for (index, (entry, report)) in entries.iter().zip(replay(&frames)).enumerate() {
            let place = (entry["index"].as_u64(), entry["length"].as_u64());
            assert_eq!(place, (Some(index as u64), Some(frames[index].len() as u64)), "{file} is in the order of the manifest");
            checked += 1;
            let complaints = check(entry, &report);
            wrong.extend(complaints.into_iter().map(|text| format!("{} ({}): {text}", entry["id"], entry["desc"])));
        }
    }
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(checked, 667, "frames");
}

/// Returns what is wrong about a report.
fn check(entry: &Value, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let expect = entry["expect"].as_str().expect("what to expect");
    let is_accepted = report.verdict == RxVerdict::Accepted;
    let should = match expect {
        "accept" | "nak_invalid_request" => Some(true),
        "drop_silently" => Some(false),
        "reserved" => None,
        either if either.contains("_or_") => None,
        other => panic!("the manifest says `{other}`, which the test does not know"),
    };
    if should.is_some_and(|should| should != is_accepted) {
        wrong.push(format!("the verdict is {:?}, the manifest says {expect}", report.verdict));
    }
    let is_icrc_valid = entry["icrc_valid"].as_bool().expect("a verdict on the ICRC");
    if report.fields.icrc_ok != is_icrc_valid {
        wrong.push(format!("the ICRC is {}, the manifest says {is_icrc_valid}", report.fields.icrc_ok));
    }
    // A bit flipped in the P_Key makes it another partition's, which is looked at before the ICRC (order of checks in the responder).
    let pkey = entry["fields"]["bth"]["pkey"].as_u64().expect("a P_Key");
    let should = if pkey & 0x7FFF == 0x7FFF { RxVerdict::BadIcrc } else { RxVerdict::Unsupported };
    if !is_icrc_valid && report.verdict != should {
        wrong.push(format!("the verdict is {:?} in spite of a wrong ICRC", report.verdict));
    }
    let (found, expected) = (fields(report), expected(entry));
    let names: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    for name in names {
        let (found, expected) = (found.get(name), expected.get(name));
        if found != expected {
            wrong.push(format!("{name} is {found:?}, the manifest says {expected:?}"));
        }
    }
    let is_tagged = entry["fields"]["eth"]["vlan"].as_array().is_some_and(|tags| !tags.is_empty());
    if report.fields.vlan != is_tagged {
        wrong.push(format!("VLAN is {}, the manifest says {is_tagged}", report.fields.vlan));
    }
    wrong
}

#[test]
fn every_icrc_of_real_captures_is_good() {
    let mut files: Vec<PathBuf> = fs::read_dir(folder().join("real"))
        .expect("the folder of real captures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    let mut good = 0;
    let mut wrong = Vec::new();
    for path in &files {
        let frames = capture::frames(path);
        for (index, (frame, report)) in frames.iter().zip(replay(&frames)).enumerate() {
            let Some(is_right) = is_icrc_right(frame) else {
                assert!(!report.fields.is_roce || report.verdict != RxVerdict::Accepted, "{} {index}: not RoCEv2", path.display());
                continue;
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !report.fields.is_roce {
                wrong.push(format!("{name} {index}: not recognised as RoCEv2"));
            } else if report.fields.icrc_ok != is_right {
                wrong.push(format!("{name} {index}: the hardware says {}, this test {is_right}", report.fields.icrc_ok));
            } else if !is_right {
                wrong.push(format!("{name} {index}: the ICRC is wrong"));
            } else {
                good += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} frames are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(good > 3900, "only {good} frames of {} captures were looked at", files.len());
}
