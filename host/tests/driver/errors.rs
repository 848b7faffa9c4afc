//! Every refusal names the value and the limit, and has its status.

use std::net::{IpAddr, Ipv6Addr};

use verbena_abi::queue::CommandCode;
use verbena_host::ndk::NtStatus;
use verbena_host::{access, Adapter, Cq, DmaBuffer, Error, Mr, Pd, Qp, QpOptions, QpState, Sge, WriteFlags};

use crate::fake_card::FakeCard;
use crate::{config, peer, Bench};

fn sge(len_bytes: u32) -> Sge {
    Sge { va: 0x1000, len_bytes, lkey: 0x101 }
}

#[test]
fn a_cq_depth_above_the_limit_or_of_zero_is_refused_inline() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let error = Cq::create(&adapter, 65_537, None, |_| panic!("an inline error has no callback")).unwrap_err();
    assert_eq!(error.to_string(), "CQ depth is 65537, the limit is 65536");
    assert_eq!(error.nt_status(), NtStatus::INVALID_PARAMETER);
    let error = Cq::create_blocking(&adapter, 0, None).unwrap_err();
    assert_eq!(error.to_string(), "CQ depth is 0, at least 1 is needed");
    assert!(card.state().commands.is_empty());
    Cq::create_blocking(&adapter, 65_536, None).unwrap();
}

#[test]
fn each_qp_option_above_its_limit_is_refused_inline_and_at_its_limit_is_not() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 512, None).unwrap();
    let all = QpOptions {
        send_sges: 6,
        receive_depth: 512,
        receive_sges: 6,
        inline_bytes: 96,
        first_psn: Some(0xFF_FFFF),
        ..QpOptions::sender(512)
    };
    for (options, message) in [
        (QpOptions { send_depth: 513, ..all.clone() }, "send queue depth is 513, the limit is 512"),
        (QpOptions { receive_depth: 513, ..all.clone() }, "receive queue depth is 513, the limit is 512"),
        (QpOptions { send_sges: 7, ..all.clone() }, "number of SGEs of a send is 7, the limit is 6"),
        (QpOptions { receive_sges: 7, ..all.clone() }, "number of SGEs of a receive is 7, the limit is 6"),
        (QpOptions { inline_bytes: 97, ..all.clone() }, "inline data size is 97, the limit is 96"),
        (QpOptions { first_psn: Some(0x100_0000), ..all.clone() }, "first PSN is 16777216, the limit is 16777215"),
    ] {
        let error = Qp::create(&pd, &cq, &cq, options, |_| panic!("an inline error has no callback")).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.nt_status()), (message, NtStatus::INVALID_PARAMETER));
    }
    assert_eq!(Qp::create_blocking(&pd, &cq, &cq, all).unwrap().qpn(), 2, "a refusal takes no number");
}

#[test]
fn a_cq_of_another_adapter_is_refused() {
    let (one, other) = (Adapter::open(FakeCard::new(), config()).unwrap(), Adapter::open(FakeCard::new(), config()).unwrap());
    let pd = Pd::create(&one).unwrap();
    let (cq, foreign) = (Cq::create_blocking(&one, 1, None).unwrap(), Cq::create_blocking(&other, 1, None).unwrap());
    let error = Qp::create_blocking(&pd, &cq, &foreign, QpOptions::sender(1)).unwrap_err();
    assert_eq!(error.to_string(), "the CQ belongs to another adapter");
}

#[test]
fn a_region_without_bytes_without_addresses_or_with_unknown_rights_is_refused() {
    let adapter = Adapter::open(FakeCard::new(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let memory = DmaBuffer::on_heap(64, 64, 0).unwrap();
    let none = memory.part(0, 0).unwrap();
    let error = Mr::register_blocking(&pd, none, 0).unwrap_err();
    assert_eq!(error.to_string(), "registration length is 0, at least 1 is needed");
    let error = Mr::register_blocking(&pd, memory.clone(), 0x10).unwrap_err();
    assert_eq!(error.to_string(), "access flags 0x10 are not all known; known are 0xf");
    let error = Mr::register_at_blocking(&pd, memory.clone(), u64::MAX - 62, 0).unwrap_err();
    assert_eq!(error.to_string(), "registration length is 64, the limit is 62");
    Mr::register_at_blocking(&pd, memory, u64::MAX - 64, access::REMOTE_READ).unwrap();
}

#[test]
fn each_value_of_a_peer_is_checked_before_the_card_hears_of_it() {
    let bench = Bench::new(4);
    let pd = bench.qp.pd().clone();
    let qp = Qp::create_blocking(&pd, &bench.cq, &bench.cq, QpOptions::sender(4)).unwrap();
    let before = bench.card.state().commands.len();
    let mut peers = vec![];
    for (change, message) in [
        ((|peer| peer.mtu_bytes = 1500) as fn(&mut verbena_host::QpPeer), "path MTU is 0x5dc, which is not one of"),
        (|peer| peer.timeout = 32, "timeout exponent is 32, the limit is 31"),
        (|peer| peer.retry_count = 8, "retry count is 8, the limit is 7"),
        (|peer| peer.rnr_retry = 8, "RNR retry count is 8, the limit is 7"),
        (|peer| peer.address.qpn = 0, "QPN of the peer is 0, at least 1 is needed"),
        (|peer| peer.address.qpn = 1 << 24, "QPN of the peer is 16777216, the limit is 16777215"),
        (|peer| peer.address.psn = 1 << 24, "PSN of the peer is 16777216, the limit is 16777215"),
        (|peer| peer.access = 1, "peer access flags 0x1 are not all known; known are 0xe"),
        (|peer| peer.source_port = Some(0xBFFF), "UDP source port is 49151, at least 49152 is needed"),
        (|peer| peer.address.ip = IpAddr::V6(Ipv6Addr::LOCALHOST), "the peer has an IPv6 address and this adapter has none"),
    ] {
        let mut bad = peer();
        change(&mut bad);
        let error = qp.connect(&bad, |_| panic!("an inline error has no callback")).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        peers.push(bad);
    }
    assert_eq!(bench.card.state().commands.len(), before);
    qp.connect_blocking(&peer()).unwrap();
    let error = qp.connect_blocking(&peer()).unwrap_err();
    assert_eq!(error.to_string(), "QP 3 is in state Rts, the call needs RESET");
    assert_eq!(error.nt_status(), NtStatus::CONNECTION_ACTIVE);
}

#[test]
fn each_refusal_of_a_post_names_value_and_limit_and_takes_no_slot() {
    let mut bench = Bench::new(1);
    let sq = &mut bench.sq;
    let error = sq.write(0, &[sge(1); 3], 0, 0, WriteFlags::NONE).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.nt_status()), ("3 SGEs, the QP was made for 2", NtStatus::DATA_OVERRUN));
    // 2^32 bytes and more: a sum of 32 bits would be small.
    let error = sq.write(0, &[sge(u32::MAX), sge(2)], 0, 0, WriteFlags::NONE).unwrap_err();
    assert_eq!(error.to_string(), "a message of 4294967297 bytes, the limit is 2147483648");
    assert_eq!(error.nt_status(), NtStatus::BUFFER_OVERFLOW);
    let error = sq.write_inline(0, &[&[1]], 0, 0, WriteFlags::NONE).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.nt_status()), ("1 bytes of inline data, the limit is 0", NtStatus::BUFFER_OVERFLOW));
    let error = sq.write(0, &[], 0, 0, WriteFlags::INLINE).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.nt_status()),
        ("write from regions flags 0x40 are not all known; known are 0x203", NtStatus::INVALID_PARAMETER)
    );
    let error = sq.write_inline(0, &[], 0, 0, WriteFlags(0x404)).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.nt_status()),
        ("inline write flags 0x404 are not all known; known are 0x243", NtStatus::INVALID_PARAMETER)
    );
    assert!(bench.card.state().doorbells.is_empty());

    bench.card.state().hold_requests = true;
    sq.write(0, &[sge(1 << 31)], 0, 0, WriteFlags::NONE).unwrap();
    let error = sq.write(0, &[], 0, 0, WriteFlags::NONE).unwrap_err();
    assert_eq!(error.to_string(), "the send queue of QP 2 holds 1 requests, its full depth");
    assert_eq!(error.nt_status(), NtStatus::NO_MORE_ENTRIES);
}

#[test]
fn a_post_to_a_qp_that_is_not_connected_names_its_state() {
    let bench = Bench::new(4);
    let pd = bench.qp.pd().clone();
    let qp = Qp::create_blocking(&pd, &bench.cq, &bench.cq, QpOptions::sender(4)).unwrap();
    let mut sq = qp.take_send_queue().unwrap();
    assert!(qp.take_send_queue().is_none(), "there is one send queue");
    let error = sq.write(0, &[], 0, 0, WriteFlags::NONE).unwrap_err();
    assert_eq!(error.to_string(), "QP 3 is not connected: its state is Reset");
    assert_eq!(error.nt_status(), NtStatus::CONNECTION_INVALID);
    drop(sq);
    assert!(qp.take_send_queue().is_some());
}

#[test]
fn a_qp_for_no_requests_and_no_sges_can_be_made_and_refuses_each_post() {
    let mut bench = Bench::with_options(QpOptions { send_sges: 0, ..QpOptions::sender(0) }, 1);
    assert!(matches!(bench.sq.write(0, &[], 0, 0, WriteFlags::NONE), Err(Error::QueueFull { depth: 0, .. })));
    assert!(matches!(bench.sq.write(0, &[sge(0)], 0, 0, WriteFlags::NONE), Err(Error::TooManySges { sges: 1, limit: 0 })));
}

#[test]
fn a_refused_command_is_reported_with_the_cards_code_and_leaks_nothing() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    let kept = card.state().memory.len();

    card.state().refuse.extend([CommandCode::InUse as u8; 3]);
    let error = Cq::create_blocking(&adapter, 4, None).unwrap_err();
    assert_eq!(error.to_string(), "the card refused CreateCq of number 1: InUse");
    assert_eq!(error.nt_status(), NtStatus::INTERNAL_ERROR);
    assert!(matches!(Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(4)), Err(Error::CommandRefused { number: 2, .. })));
    let memory = adapter.device().clone().alloc(64, 64).unwrap();
    assert!(matches!(Mr::register_blocking(&pd, memory, 0), Err(Error::CommandRefused { number: 0x101, .. })));
    assert!(card.is_memory_free(kept));
    assert_eq!(adapter.anomalies().lost_objects(), 0);
    drop((pd, cq));
    adapter.close_blocking().unwrap();
}

#[test]
fn an_answer_that_means_nothing_is_an_error_and_the_memory_is_kept() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let kept = card.state().memory.len();
    card.state().refuse.push_back(0xEE);
    let error = Cq::create_blocking(&adapter, 4, None).unwrap_err();
    assert_eq!(error.to_string(), "the card answered 0xee to CreateCq of number 0, which means nothing");
    assert!(!card.is_memory_free(kept), "the card may have the ring, so nobody else may");
    assert_eq!(adapter.anomalies().lost_objects(), 1);
    assert_eq!(Cq::create_blocking(&adapter, 4, None).unwrap().cqn(), 1, "nor may anybody have the number");
}

#[test]
fn a_query_reports_what_the_card_knows_and_no_state_that_does_not_exist() {
    let bench = Bench::new(4);
    let report = bench.qp.query_blocking().unwrap();
    assert_eq!((report.state, report.next_psn.raw(), report.expected_psn.raw(), report.msn), (QpState::Rts, 1, 3, 4));
    bench.card.state().qps.get_mut(&2).unwrap().context.state = 99;
    assert_eq!(bench.qp.query_blocking().unwrap_err().to_string(), "the card answered 0x63 to QueryQp of number 2, which means nothing");
}

#[test]
fn a_failed_step_of_a_connection_puts_the_qp_back_for_another_attempt() {
    let bench = Bench::new(4);
    let pd = bench.qp.pd().clone();
    let qp = Qp::create_blocking(&pd, &bench.cq, &bench.cq, QpOptions::sender(4)).unwrap();
    bench.card.state().hold_commands = true;
    let outcome = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let answer = outcome.clone();
    let _ = qp.connect(&peer(), move |result| answer.lock().unwrap().push(result)).unwrap();
    assert!(matches!(qp.connect(&peer(), |_| ()), Err(Error::ChangeUnderWay { qpn: 3 })));
    bench.card.step();
    bench.adapter.process_events();
    bench.card.state().refuse.push_back(CommandCode::BadParameter as u8);
    while bench.card.step() {
        bench.adapter.process_events();
    }
    assert!(matches!(outcome.lock().unwrap()[..], [Err(Error::CommandRefused { code: CommandCode::BadParameter, .. })]));
    assert_eq!(qp.state(), QpState::Reset);
    assert_eq!(bench.card.state().contexts.last().unwrap().state, QpState::Reset as u8);
    bench.card.state().hold_commands = false;
    qp.connect_blocking(&peer()).unwrap();
}

#[test]
fn a_blocking_call_says_what_it_waited_for_and_where_it_hangs() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    {
        let mut state = card.state();
        (state.hold_commands, state.wait_steps) = (true, false);
    }
    let error = Cq::create_blocking(&adapter, 4, None).unwrap_err();
    let message = "gave up waiting for a CQ to be created after 200 waits (the card has CreateCq of number 0 with tag 1, 0 more wait)";
    assert_eq!((error.to_string().as_str(), error.nt_status()), (message, NtStatus::IO_TIMEOUT));

    // What was started ends later, and is undone: nobody wants it any more.
    card.state().hold_commands = false;
    card.step();
    adapter.process_events();
    assert!(card.state().cqs.is_empty());
    assert!(card.is_memory_free(1));
    adapter.close_blocking().unwrap();
}
