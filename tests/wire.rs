//! What the cards send, as others see it: `tshark`, `etherparse`, and an ICRC of the test's own.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use verbena_host::WriteFlags;
use verbena_tests::alignments::MTUS;
use verbena_tests::capture::Reth;
use verbena_tests::pair::{check_done, Link, Options, Outcome, Pair, Write};

/// First PSN of either end.
const PSN: [u32; 2] = [0xFF_FFF0, 0x00_0001];
/// 802.1Q tag: priority 3, identifier 1234.
const TCI: u16 = 3 << 13 | 1234;

/// A packet that must be on the wire.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    opcode: u8,
    qpn: u32,
    psn: u32,
    ack_requested: bool,
    pad: u8,
    reth: Option<Reth>,
    payload: Vec<u8>,
}

struct Run {
    outcome: Outcome,
    options: Options,
    /// Packets of the requester.
    sent: Vec<Expected>,
    /// QPN of the requester, and messages.
    qpn: u32,
    messages: u32,
}

/// Writes with all pads, of no bytes, one packet, and several.
fn run(mtu: u32, ipv6: bool, vlan: Option<u16>) -> Run {
    let options = Options { mtu, ipv6, vlan, capture: true, ..Options::default() };
    let mut pair = Pair::new(options.clone());
    let mut connection = pair.connect(&Link { psn: PSN, ..Link::default() });
    let (qpn, remote_qpn) = (connection.qps[0].qpn(), connection.qps[1].qpn());
    let lengths = [0, 1, 2, 3, 4, 5, 59, 60, 61, 62, mtu - 1, mtu, mtu + 1, mtu + 2, 2 * mtu, 3 * mtu + 3];
    let mut sent = Vec::new();
    let mut to = 64;
    for (context, len) in (0..).zip(lengths) {
        let write = Write::new(70_000 + 501 * context as usize, to, len);
        let bytes = pair.ends[0].region.expected(write.pieces[0].0, len as usize).to_vec();
        pair.post(&mut connection, 0, context, &write, WriteFlags::NONE).unwrap();
        let target = &pair.ends[1].region;
        let reth = Reth { va: target.va(to), rkey: target.key(), len_bytes: len };
        let packets = len.div_ceil(mtu).max(1);
        for number in 0..packets {
            let (is_first, is_last) = (number == 0, number + 1 == packets);
            let start = (number * mtu) as usize;
            let payload = bytes[start..bytes.len().min(start + mtu as usize)].to_vec();
            sent.push(Expected {
                opcode: [[0x07, 0x08], [0x06, 0x0A]][usize::from(is_first)][usize::from(is_last)],
                qpn: remote_qpn,
                psn: (PSN[0] + sent.len() as u32) & 0xFF_FFFF,
                ack_requested: is_last,
                pad: (payload.len().wrapping_neg() & 3) as u8,
                reth: is_first.then_some(reth),
                payload,
            });
        }
        to += len as usize + 77;
    }
    check_done(&pair.reap(0, lengths.len(), "all writes"), 0..lengths.len() as u64);
    pair.settle("all writes");
    Run { outcome: pair.close([connection]), options, sent, qpn, messages: lengths.len() as u32 }
}

/// Looks at all frames with the test's own eyes.
fn check(run: &Run) {
    let packets = &run.outcome.packets;
    for (index, packet) in packets.iter().enumerate() {
        assert!(packet.is_icrc_right, "ICRC of frame {index}");
        assert!(packet.is_checksum_right, "IPv4 checksum of frame {index}");
        assert!(packet.are_lengths_right, "lengths in frame {index}");
        assert_eq!((packet.ipv6, packet.vlan), (run.options.ipv6, run.options.vlan.map(|tci| tci & 0xFFF)), "frame {index}");
        assert!(packet.source_port >= 0xC000, "source port {} of frame {index}", packet.source_port);
        assert_eq!(
            packet.frame[..12],
            if packet.from == 0 { [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1] } else { [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2] }
        );
        if let Some(tci) = run.options.vlan {
            assert_eq!(packet.frame[12..16], [0x81, 0x00, (tci >> 8) as u8, tci as u8], "tag of frame {index}");
        }
    }
    let found: Vec<Expected> = packets
        .iter()
        .filter(|packet| packet.from == 0)
        .map(|packet| Expected {
            opcode: packet.opcode,
            qpn: packet.qpn,
            psn: packet.psn,
            // Asking for more acknowledgements than at the end of a message is not wrong.
            ack_requested: packet.ack_requested && matches!(packet.opcode, 0x08 | 0x0A),
            pad: packet.pad,
            reth: packet.reth,
            payload: packet.payload.clone(),
        })
        .collect();
    assert_eq!(found.len(), run.sent.len(), "request packets");
    for (index, (found, expected)) in found.iter().zip(&run.sent).enumerate() {
        assert_eq!(found, expected, "request packet {index}");
    }
    let acks: Vec<_> = packets.iter().filter(|packet| packet.from == 1).collect();
    let last = acks.last().expect("an acknowledgement");
    for ack in &acks {
        assert_eq!((ack.opcode, ack.qpn, ack.pad, ack.payload.len()), (0x11, run.qpn, 0, 0));
        assert_eq!(ack.aeth.map(|aeth| aeth.syndrome >> 5), Some(0), "an acknowledgement, and no NAK");
    }
    assert_eq!(last.psn, run.sent.last().expect("a packet").psn, "the last packet is acknowledged");
    assert_eq!(last.aeth.map(|aeth| aeth.msn), Some(run.messages));
}

/// Tells whether there is a `tshark`. In CI there must be one.
fn has_tshark() -> bool {
    let runs =
        Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !runs {
        assert!(env::var("CI").as_deref() != Ok("true"), "there is no `tshark` on the PATH, and this is CI");
        println!("skipped what needs `tshark`: it is not on the PATH");
    }
    runs
}

/// Returns the fields of every frame as `tshark` shows them.
fn tshark(path: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(path).args(["-o", "ip.check_checksum:TRUE"]);
    // RoCEv2 has no UDP checksum, over IPv6 neither (annex A17.3.1.2), which Wireshark else complains of.
    command.args(["-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "tshark fails: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

/// Reads a number as `tshark` shows it, in either base.
fn number(text: &str) -> u64 {
    text.strip_prefix("0x")
        .map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// Looks at all frames with the eyes of Wireshark.
fn check_with_tshark(run: &Run) {
    let path = run.outcome.path.as_ref().expect("a capture");
    let names = [
        "frame.protocols",
        "_ws.expert.message",
        "_ws.malformed",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "infiniband.bth.a",
        "infiniband.bth.padcnt",
        "infiniband.reth.va",
        "infiniband.reth.r_key",
        "infiniband.reth.dmalen",
        "infiniband.aeth.syndrome",
        "infiniband.aeth.msn",
        "infiniband.invariant.crc",
        "ip.checksum.status",
        "vlan.id",
    ];
    let rows = tshark(path, &names);
    let packets = &run.outcome.packets;
    assert_eq!(rows.len(), packets.len(), "frames");
    for (index, (row, packet)) in rows.iter().zip(packets).enumerate() {
        let value = |name: &str| row[names.iter().position(|other| *other == name).expect("a field")].as_str();
        assert!(value("frame.protocols").contains("infiniband"), "frame {index} is {}", value("frame.protocols"));
        // RoCEv2 leaves the UDP checksum at 0 over IPv6 too, as Linux soft-RoCE does; tshark names that.
        let complaint = value("_ws.expert.message").trim_start_matches(if packet.ipv6 { "Illegal checksum value (0)" } else { "\0" });
        assert_eq!((complaint, value("_ws.malformed")), ("", ""), "complaints about frame {index}");
        let seen = ["opcode", "psn", "destqp", "padcnt"].map(|name| number(value(&format!("infiniband.bth.{name}"))));
        assert_eq!(seen, [packet.opcode.into(), packet.psn.into(), packet.qpn.into(), packet.pad.into()], "BTH of frame {index}");
        assert!(matches!(value("infiniband.bth.a"), "1" | "True") == packet.ack_requested, "AckReq of frame {index}");
        let reth = ["va", "r_key", "dmalen"].map(|name| value(&format!("infiniband.reth.{name}")));
        let expected = packet.reth.map(|reth| [reth.va, reth.rkey.into(), reth.len_bytes.into()]);
        assert_eq!((reth != [""; 3]).then(|| reth.map(number)), expected, "RETH of frame {index}");
        let aeth = ["syndrome", "msn"].map(|name| value(&format!("infiniband.aeth.{name}")));
        let expected = packet.aeth.map(|aeth| [aeth.syndrome.into(), aeth.msn.into()]);
        assert_eq!((aeth != [""; 2]).then(|| aeth.map(number)), expected, "AETH of frame {index}");
        let icrc = packet.frame.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        assert_eq!(number(value("infiniband.invariant.crc")), icrc.into(), "place of the ICRC in frame {index}");
        // 1 is good.
        let status = value("ip.checksum.status");
        assert!(if packet.ipv6 { status.is_empty() } else { matches!(status, "1" | "Good") }, "IPv4 checksum of frame {index}: {status}");
        assert_eq!(value("vlan.id"), packet.vlan.map_or(String::new(), |id| id.to_string()), "VLAN of frame {index}");
    }
}

fn frames_are_right(ipv6: bool, vlan: Option<u16>) {
    let has_tshark = has_tshark();
    for mtu in MTUS {
        let run = run(mtu, ipv6, vlan);
        check(&run);
        if has_tshark {
            check_with_tshark(&run);
        }
    }
}

#[test]
fn frames_over_ipv4_are_what_was_posted() {
    frames_are_right(false, None);
}

#[test]
fn frames_over_tagged_ipv4_are_what_was_posted() {
    frames_are_right(false, Some(TCI));
}

#[test]
fn frames_over_ipv6_are_what_was_posted() {
    frames_are_right(true, None);
}

#[test]
fn frames_over_tagged_ipv6_are_what_was_posted() {
    frames_are_right(true, Some(TCI));
}
