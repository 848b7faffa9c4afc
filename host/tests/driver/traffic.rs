//! The exact order of register accesses.

use std::sync::{Arc, Mutex};

use verbena_abi::limits;
use verbena_abi::queue::{qp_flags, CmdCq, CmdMr, CmdQp, CommandCode, CommandOp, Cqe, Eqe, EventKind, SqWqe, PHASE};
use verbena_abi::regs::{
    self, AbiVersion, CmdArgs, CmdGo, CmdStatus, Doorbell, EqBaseHi, EqBaseLo, EqConfig, EqConsumer, Id, MacHi, MacLo, Status,
};
use verbena_host::mock::{MockBar, MockDevice, FIRST_IOVA};
use verbena_host::{
    access, Adapter, AdapterConfig, ArmKind, Completion, Cq, DmaBuffer, Error, Mr, Pd, Qp, QpOptions, Sge, Traffic, WriteFlags,
};

use crate::fake_card::words;
use crate::{config, peer};

const CAPABILITIES: [(u32, u32); 12] = [
    (regs::CapQps::OFFSET, regs::CapQps::RESET),
    (regs::CapCqs::OFFSET, regs::CapCqs::RESET),
    (regs::CapMrs::OFFSET, regs::CapMrs::RESET),
    (regs::CapPds::OFFSET, regs::CapPds::RESET),
    (regs::CapQueues::OFFSET, regs::CapQueues::RESET),
    (regs::CapSges::OFFSET, regs::CapSges::RESET),
    (regs::CapInline::OFFSET, regs::CapInline::RESET),
    (regs::CapMessage::OFFSET, regs::CapMessage::RESET),
    (regs::CapMtu::OFFSET, regs::CapMtu::RESET),
    (regs::CapVectors::OFFSET, regs::CapVectors::RESET),
    (regs::CapReads::OFFSET, regs::CapReads::RESET),
    (regs::CapClock::OFFSET, regs::CapClock::RESET),
];

/// Log2 of the event queue for this build: two entries for each CQ and QP, one command, rounded up.
const LOG_EQ: u32 = (2 * (limits::QPS + limits::CQS) + 1).next_power_of_two().trailing_zeros();

fn expect_identity(bar: &MockBar) {
    bar.expect_read(Id::OFFSET, Id::RESET).expect_read(AbiVersion::OFFSET, AbiVersion::RESET);
}

fn expect_open(bar: &MockBar) {
    expect_identity(bar);
    bar.expect_read(Status::OFFSET, 1);
    for (offset, value) in CAPABILITIES {
        bar.expect_read(offset, value);
    }
    bar.expect_write(MacLo::OFFSET, 0x3322_1102).expect_write(MacHi::OFFSET, 0x5544);
    bar.expect_write(regs::Ipv4::OFFSET, 0x0100_000A);
    for index in 0..4 {
        bar.expect_write(regs::Ipv6::OFFSET + 4 * index, 0);
    }
    bar.expect_write(EqBaseLo::OFFSET, FIRST_IOVA as u32).expect_write(EqBaseHi::OFFSET, (FIRST_IOVA >> 32) as u32);
    bar.expect_write(EqConsumer::OFFSET, 0);
    bar.expect_write(EqConfig::OFFSET, 0x8000_0000 | LOG_EQ);
}

fn expect_command(bar: &MockBar, op: CommandOp, words: &[u32], tag: u32) {
    for (index, word) in (0..).zip(words) {
        bar.expect_write(CmdArgs::OFFSET + 4 * index, *word);
    }
    bar.expect_write(CmdGo::OFFSET, tag << 16 | op as u32);
}

fn expect_close(bar: &MockBar) {
    bar.expect_write(EqConfig::OFFSET, 0).expect_read(EqConfig::OFFSET, 0);
}

/// Plays the card: writes event `index`.
fn write_event(mock: &MockDevice, index: u32, kind: EventKind, number: u32, code: u8) {
    let eqe = Eqe { number: number.into(), kind: kind as u8, code, phase: PHASE, ..Eqe::default() };
    mock.buffers()[0].write(index as usize * 32, &eqe).unwrap();
}

/// Lets the command with `tag` succeed and the driver see it.
fn finish(mock: &MockDevice, adapter: &Arc<Adapter>, tag: u32) {
    write_event(mock, tag - 1, EventKind::Command, tag, CommandCode::Ok as u8);
    mock.mock_bar().expect_write(EqConsumer::OFFSET, tag);
    assert_eq!(adapter.process_events(), 1);
}

/// What a creation handed out, once it did.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// Keeps what a creation hands out.
fn slot<T: Send + 'static>() -> (Slot<T>, impl FnOnce(Result<T, Error>) + Send + 'static) {
    let slot = Slot::default();
    let answer = slot.clone();
    (slot, move |outcome| *answer.lock().unwrap() = Some(outcome.unwrap()))
}

#[test]
fn opening_checks_waits_reads_limits_and_programs_addresses_in_that_order() {
    let mock = MockDevice::new();
    expect_open(mock.mock_bar());
    let adapter = Adapter::open(mock.clone(), config()).unwrap();
    mock.mock_bar().verify();
    let info = adapter.info();
    assert_eq!(
        (info.max_qps, info.max_cqs, info.max_mrs, info.max_pds),
        (limits::QPS as u32 - limits::FIRST_QPN, limits::CQS as u32, limits::MRS as u32 - 1, 65_535)
    );
    assert_eq!((info.max_send_depth, info.max_receive_depth, info.max_cq_depth), (512, 512, 65_536));
    assert_eq!((info.max_send_sges, info.max_receive_sges, info.max_inline_bytes), (6, 6, 96));
    assert_eq!((info.max_message_bytes, info.max_mtu_bytes, info.vectors, info.clock_khz), (1 << 31, 4096, 32, 250_000));
    assert_eq!(mock.buffers()[0].len(), 32 << LOG_EQ);

    expect_close(mock.mock_bar());
    drop(adapter);
    mock.mock_bar().verify();
}

#[test]
fn opening_waits_between_looks_at_the_status() {
    let mock = MockDevice::new();
    expect_identity(mock.mock_bar());
    mock.mock_bar().expect_read(Status::OFFSET, 0).expect_read(Status::OFFSET, 2).expect_read(Status::OFFSET, 0);
    let config = AdapterConfig { max_waits: 2, ..config() };
    let error = Adapter::open(mock.clone(), config).unwrap_err();
    assert_eq!(error.to_string(), "the card is not ready after 2 waits: Status is 0x00000000");
    assert_eq!(mock.waits(), 2);
    mock.mock_bar().verify();
}

#[test]
fn another_identity_or_major_version_ends_the_opening() {
    let mock = MockDevice::new();
    mock.mock_bar().expect_read(Id::OFFSET, 0x1234_5678);
    let error = Adapter::open(mock.clone(), config()).unwrap_err();
    assert_eq!(error.to_string(), "no Verbena card: identity register is 0x12345678, expected 0x5652424e");

    mock.mock_bar().expect_read(Id::OFFSET, Id::RESET).expect_read(AbiVersion::OFFSET, 0x0002_0007);
    let error = Adapter::open(mock.clone(), config()).unwrap_err();
    let (major, minor) = verbena_abi::ABI_VERSION;
    assert_eq!(error.to_string(), format!("the card speaks interface 2.7, this driver {major}.{minor}"));
    mock.mock_bar().verify();
}

#[test]
fn a_larger_minor_version_is_welcome() {
    let mock = MockDevice::new();
    mock.mock_bar().expect_read(Id::OFFSET, Id::RESET).expect_read(AbiVersion::OFFSET, 0x0001_0009);
    mock.mock_bar().expect_read(Status::OFFSET, u32::MAX);
    assert!(matches!(Adapter::open(mock, config()), Err(Error::DeviceRemoved { register: "Status" })));
}

#[test]
fn all_ones_are_a_card_that_is_gone_wherever_they_show() {
    let mock = MockDevice::new();
    mock.mock_bar().expect_read(Id::OFFSET, u32::MAX);
    assert!(matches!(Adapter::open(mock, config()), Err(Error::DeviceRemoved { register: "Id" })));

    let mock = MockDevice::new();
    expect_identity(mock.mock_bar());
    mock.mock_bar().expect_read(Status::OFFSET, 1).expect_read(regs::CapQps::OFFSET, u32::MAX);
    assert!(matches!(Adapter::open(mock, config()), Err(Error::DeviceRemoved { register: "CapQps" })));
}

#[test]
fn a_count_of_64_bits_is_read_between_two_equal_high_words() {
    use regs::WideCounter::{RdmaInFrames, RdmaInOctets, RdmaOutFrames, RdmaOutOctets};
    let mock = MockDevice::new();
    let bar = mock.mock_bar();
    expect_open(bar);
    let adapter = Adapter::open(mock.clone(), config()).unwrap();
    let [low, high] = [0, 4].map(|word| move |counter: regs::WideCounter| counter.offset() + word);
    // It goes over the end of the low word twice while it is read.
    bar.expect_read(high(RdmaInOctets), 0).expect_read(low(RdmaInOctets), 0xFFFF_FFF0).expect_read(high(RdmaInOctets), 1);
    bar.expect_read(low(RdmaInOctets), 7).expect_read(high(RdmaInOctets), 2);
    bar.expect_read(low(RdmaInOctets), 9).expect_read(high(RdmaInOctets), 2);
    bar.expect_read(high(RdmaOutOctets), 5).expect_read(low(RdmaOutOctets), 0xFFFF_FFFF).expect_read(high(RdmaOutOctets), 5);
    bar.expect_read(high(RdmaInFrames), 0).expect_read(low(RdmaInFrames), 3).expect_read(high(RdmaInFrames), 0);
    bar.expect_read(high(RdmaOutFrames), 0).expect_read(low(RdmaOutFrames), 4).expect_read(high(RdmaOutFrames), 0);
    let expected = Traffic { in_octets: 0x2_0000_0009, out_octets: 0x5_FFFF_FFFF, in_frames: 3, out_frames: 4 };
    assert_eq!(adapter.read_traffic().unwrap(), expected);
    // A card that goes away, before a read and within one.
    bar.expect_read(high(RdmaInOctets), u32::MAX);
    assert!(matches!(adapter.read_traffic(), Err(Error::DeviceRemoved { register: "WideCounters" })));
    bar.expect_read(high(RdmaInOctets), 0).expect_read(low(RdmaInOctets), 17).expect_read(high(RdmaInOctets), u32::MAX);
    assert!(matches!(adapter.read_traffic(), Err(Error::DeviceRemoved { register: "WideCounters" })));
    bar.verify();
    expect_close(bar);
    adapter.close_blocking().unwrap();
    bar.verify();
}

#[test]
fn a_capability_that_cannot_be_is_named_with_what_can() {
    for (bad, value, message) in [
        (0, 1, "capability CapQps is 1, usable are 3 to 4080"),
        (1, 5000, "capability CapCqs is 5000, usable are 1 to 4080"),
        (4, 0x1010_0010, "capability CapQueues.LOG_SQ is 16, usable are 0 to 15"),
        (5, 7, "capability CapSges.INITIATOR is 7, usable are 1 to 6"),
        (8, 1000, "capability CapMtu is 1000, usable are 256 to 4096"),
        (9, 0, "capability CapVectors is 0, usable are 1 to 2048"),
    ] {
        let mock = MockDevice::new();
        expect_identity(mock.mock_bar());
        mock.mock_bar().expect_read(Status::OFFSET, 1);
        for (index, (offset, good)) in CAPABILITIES.into_iter().enumerate().take(bad + 1) {
            mock.mock_bar().expect_read(offset, if index == bad { value } else { good });
        }
        assert_eq!(Adapter::open(mock.clone(), config()).unwrap_err().to_string(), message);
        mock.mock_bar().verify();
    }
}

#[test]
fn a_station_address_must_be_one_and_the_vector_must_exist() {
    let mock = MockDevice::new();
    for mac in [[0; 6], [0x01, 0, 0x5E, 0, 0, 1]] {
        assert!(matches!(Adapter::open(mock.clone(), AdapterConfig { mac, ..config() }), Err(Error::BadValue { .. })));
    }
    expect_identity(mock.mock_bar());
    mock.mock_bar().expect_read(Status::OFFSET, 1);
    for (offset, value) in CAPABILITIES {
        mock.mock_bar().expect_read(offset, value);
    }
    let error = Adapter::open(mock, AdapterConfig { event_vector: 32, ..config() }).unwrap_err();
    assert_eq!(error.to_string(), "event_vector is 32, the limit is 31");
}

#[test]
fn one_write_from_creation_to_completion_is_this_traffic_and_no_other() {
    let mock = MockDevice::new();
    let bar = mock.mock_bar();
    expect_open(bar);
    let adapter = Adapter::open(mock.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();

    // A CQ of 3 entries has a ring of 4.
    let address = |buffer: usize| mock.buffers()[buffer].iova();
    let ring = FIRST_IOVA + (32 << LOG_EQ);
    expect_command(bar, CommandOp::CreateCq, &words(&CmdCq { cqn: 0.into(), log_depth: 2, address: ring.into(), ..CmdCq::default() }), 1);
    let (cq, done) = slot();
    let _ = Cq::create(&adapter, 3, None, done).unwrap();
    assert_eq!(address(1), ring);
    assert!(cq.lock().unwrap().is_none(), "nothing is created before the card says so");
    finish(&mock, &adapter, 1);
    let cq = cq.lock().unwrap().take().unwrap();

    // A QP of 5 requests has a ring of 8, and its progress record behind it.
    let sq = ring + 4096;
    let created = CmdQp {
        qpn: 2.into(),
        pd: 1.into(),
        sq_psn: 0xABCDEF.into(),
        sq_address: sq.into(),
        progress_address: (sq + 512).into(),
        sq_log_depth: 3,
        ..CmdQp::default()
    };
    expect_command(bar, CommandOp::CreateQp, &words(&created), 2);
    let (qp, done) = slot();
    let options = QpOptions { context: 42, first_psn: Some(0xABCDEF), ..QpOptions::sender(5) };
    let _ = Qp::create(&pd, &cq, &cq, options, done).unwrap();
    finish(&mock, &adapter, 2);
    let qp = qp.lock().unwrap().take().unwrap();

    // A region: its memory is the mock's, its address the test's choice.
    let memory = DmaBuffer::on_heap(4096, 64, 0x77_0000).unwrap();
    let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
    let registered = CmdMr {
        key: 0x101.into(),
        pd: 1.into(),
        access: rights,
        base_va: 0x5000.into(),
        len_bytes: 4096.into(),
        iova: 0x77_0000.into(),
        ..CmdMr::default()
    };
    expect_command(bar, CommandOp::CreateMr, &words(&registered), 3);
    let (mr, done) = slot();
    let _ = Mr::register_at(&pd, memory, 0x5000, rights, done).unwrap();
    finish(&mock, &adapter, 3);
    let mr: Arc<Mr> = mr.lock().unwrap().take().unwrap();
    assert_eq!((mr.lkey(), mr.rkey()), (0x101, 0x101));

    // INIT, RTR, RTS: each with the whole context, each only after the one before.
    let mut context = CmdQp {
        state: 1,
        access: access::REMOTE_WRITE | access::REMOTE_READ,
        mtu: 3,
        ttl: 64,
        remote_qpn: 9.into(),
        rq_psn: 0x12_3456.into(),
        source_port: (0xC000 | (2 ^ (9 << 7))).into(),
        remote_mac: [2, 0, 0, 0, 0, 2],
        pkey: 0xFFFF.into(),
        remote_ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        ..created
    };
    expect_command(bar, CommandOp::ModifyQp, &words(&context), 4);
    let (connected, done) = slot();
    let _ = qp.connect(&peer(), done).unwrap();
    for (state, tag) in [(2, 4), (3, 5)] {
        context.state = state;
        write_event(&mock, tag - 1, EventKind::Command, tag, 0);
        expect_command(bar, CommandOp::ModifyQp, &words(&context), tag + 1);
        bar.expect_write(EqConsumer::OFFSET, tag);
        adapter.process_events();
        assert!(connected.lock().unwrap().is_none());
    }
    finish(&mock, &adapter, 6);
    assert_eq!(connected.lock().unwrap().take(), Some(()));

    // The post: one doorbell, behind the entry.
    let mut queue = qp.take_send_queue().unwrap();
    bar.expect_write(Doorbell::Sq.offset(2), 1);
    queue.write(4711, &[Sge { va: 0x5010, len_bytes: 100, lkey: mr.lkey() }], 0xFACE, 0x99, WriteFlags::READ_FENCE).unwrap();
    let wqe: SqWqe = mock.buffers()[2].read(0).unwrap();
    assert_eq!((wqe.opcode, wqe.flags, wqe.sges, wqe.remote_va.get(), wqe.rkey.get()), (1, 5, 1, 0xFACE, 0x99));
    assert_eq!((wqe.sge[0].va.get(), wqe.sge[0].len_bytes.get(), wqe.sge[0].lkey.get()), (0x5010, 100, 0x101));

    // Polling an empty queue touches nothing; arming is one write; a batch is one doorbell.
    let mut batch = [Completion::default(); 4];
    assert_eq!(cq.poll(&mut batch), 0);
    bar.expect_write(Doorbell::CqArm.offset(0), ArmKind::Any.word(0));
    cq.arm(ArmKind::Any);
    bar.expect_write(Doorbell::CqModeration.offset(0), 0x0003_0014);
    cq.moderate(20, 3).unwrap();
    mock.buffers()[1].write(0, &Cqe { qpn: 2.into(), opcode: 1, phase: PHASE, ..Cqe::default() }).unwrap();
    bar.expect_write(Doorbell::CqConsumer.offset(0), 1);
    assert_eq!(cq.poll(&mut batch), 1);
    assert_eq!((batch[0].context, batch[0].qp_context, batch[0].status.is_success()), (4711, 42, true));

    // The end, in the order of the objects: the QP first, though the CQ is closed first.
    let naming = |bar: &MockBar, op, number, tag: u32| {
        bar.expect_write(CmdArgs::OFFSET, number).expect_write(CmdGo::OFFSET, tag << 16 | op as u32);
    };
    let _ = cq.close(|| ());
    naming(bar, CommandOp::DestroyQp, 2, 7);
    drop((queue, qp));
    write_event(&mock, 6, EventKind::Command, 7, 0);
    naming(bar, CommandOp::DestroyCq, 0, 8);
    bar.expect_write(EqConsumer::OFFSET, 7);
    adapter.process_events();
    finish(&mock, &adapter, 8);
    naming(bar, CommandOp::DestroyMr, 0x101, 9);
    drop(mr);
    finish(&mock, &adapter, 9);
    drop(pd);
    expect_close(bar);
    adapter.close_blocking().unwrap();
    bar.verify();
}

#[test]
fn six_sges_make_requests_of_two_units() {
    let mock = MockDevice::new();
    let bar = mock.mock_bar();
    expect_open(bar);
    let adapter = Adapter::open(mock.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let ring = FIRST_IOVA + (32 << LOG_EQ);
    expect_command(bar, CommandOp::CreateCq, &words(&CmdCq { address: ring.into(), ..CmdCq::default() }), 1);
    let (cq, done) = slot();
    let _ = Cq::create(&adapter, 1, None, done).unwrap();
    finish(&mock, &adapter, 1);
    let cq: Arc<Cq> = cq.lock().unwrap().take().unwrap();
    let sq = ring + 4096;
    let context = CmdQp {
        qpn: 2.into(),
        flags: qp_flags::TWO_UNITS,
        pd: 1.into(),
        sq_address: sq.into(),
        progress_address: (sq + 4 * 128).into(),
        sq_log_depth: 2,
        ..CmdQp::default()
    };
    expect_command(bar, CommandOp::CreateQp, &words(&context), 2);
    let options = QpOptions { send_sges: 6, first_psn: Some(0), ..QpOptions::sender(4) };
    let _ = Qp::create(&pd, &cq, &cq, options, |_| ()).unwrap();
    bar.verify();
    // What is under way keeps everything alive; the mock's card never answers.
    std::mem::forget((pd, cq));
}

#[test]
fn a_lost_event_is_made_up_for_by_the_status_register() {
    let mock = MockDevice::new();
    let bar = mock.mock_bar();
    expect_open(bar);
    let adapter = Adapter::open(mock.clone(), config()).unwrap();
    let ring = FIRST_IOVA + (32 << LOG_EQ);
    expect_command(bar, CommandOp::CreateCq, &words(&CmdCq { address: ring.into(), ..CmdCq::default() }), 1);
    // Not seen yet, busy, done.
    bar.expect_read(CmdStatus::OFFSET, 0).expect_read(CmdStatus::OFFSET, 0x0001_0001).expect_read(CmdStatus::OFFSET, 0x0001_0000);
    let cq = Cq::create_blocking(&adapter, 1, None).unwrap();
    bar.verify();

    // The event comes late: it is taken for what it is.
    write_event(&mock, 0, EventKind::Command, 1, 0);
    bar.expect_write(EqConsumer::OFFSET, 1);
    assert_eq!(adapter.process_events(), 1);
    assert_eq!(adapter.anomalies().unknown_events(), 0);

    bar.expect_write(CmdArgs::OFFSET, 0).expect_write(CmdGo::OFFSET, 2 << 16 | CommandOp::DestroyCq as u32);
    bar.expect_read(CmdStatus::OFFSET, 0x0002_0000);
    cq.close_blocking().unwrap();
    expect_close(bar);
    drop(adapter);
    bar.verify();
}
