//! What the card tells by itself: notifications, faults, overruns, and nonsense.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use verbena_abi::queue::{Cqe, EventKind};
use verbena_abi::regs::{AbiVersion, Clocks, Counter, EqConsumer, Moderation, StageControl};
use verbena_abi::stages::Stage;
use verbena_host::cq::{CompletionStatus, CqCallback, Operation};
use verbena_host::qp::QpFault;
use verbena_host::{
    Adapter, ArmKind, Completion, Cq, CqNotice, CqeStatus, Device, Error, Pd, Qp, QpOptions, QpState, SendQueue, StageCount, WriteFlags,
};

use crate::fake_card::FakeCard;
use crate::{config, drain, peer, Bench};

type Notices = Arc<Mutex<Vec<CqNotice>>>;

fn recorder() -> (Notices, CqCallback) {
    let notices = Notices::default();
    let record = notices.clone();
    (notices, Box::new(move |_, notice| record.lock().unwrap().push(notice)))
}

fn connected(card: &Arc<FakeCard>, callback: CqCallback) -> (Arc<Adapter>, Arc<Cq>, SendQueue) {
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 8, Some(callback)).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(8)).unwrap();
    qp.connect_blocking(&peer()).unwrap();
    let sq = qp.take_send_queue().unwrap();
    (adapter, cq, sq)
}

#[test]
fn an_arm_is_good_for_one_notification() {
    let (card, (notices, callback)) = (FakeCard::new(), recorder());
    let (adapter, cq, mut sq) = connected(&card, callback);
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    adapter.process_events();
    assert!(notices.lock().unwrap().is_empty(), "nothing before the first arm");
    assert_eq!(drain(&cq).len(), 1);
    cq.arm(ArmKind::Any);
    sq.write(2, &[], 0, 0, WriteFlags::NONE).unwrap();
    sq.write(3, &[], 0, 0, WriteFlags::NONE).unwrap();
    assert_eq!(card.take_interrupts(), 1);
    adapter.process_events();
    assert_eq!(*notices.lock().unwrap(), [CqNotice::Completion]);
}

#[test]
fn an_arm_behind_an_entry_that_was_not_polled_fires_at_once_but_not_in_the_callers_stack() {
    let (card, (notices, callback)) = (FakeCard::new(), recorder());
    let (adapter, cq, mut sq) = connected(&card, callback);
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    cq.arm(ArmKind::Any);
    assert!(notices.lock().unwrap().is_empty());
    adapter.process_events();
    assert_eq!(notices.lock().unwrap().len(), 1);
}

#[test]
fn the_usual_consumer_polls_and_arms_inside_its_callback_and_misses_nothing() {
    let card = FakeCard::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let callback: CqCallback = Box::new(move |cq, notice| {
        assert_eq!(notice, CqNotice::Completion);
        record.lock().unwrap().extend(drain(cq).iter().map(|completion| completion.context));
        cq.arm(ArmKind::Any);
    });
    let (adapter, cq, mut sq) = connected(&card, callback);
    cq.arm(ArmKind::Any);
    for context in 0..100 {
        sq.write(context, &[], 0, 0, WriteFlags::NONE).unwrap();
        if context % 5 == 4 {
            adapter.process_events();
        }
    }
    adapter.process_events();
    assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn arming_twice_keeps_the_wider_kind() {
    use ArmKind::{Any, Errors, Solicited};
    let cases = [
        (Any, Any, Some(1)),
        (Any, Errors, Some(1)),
        (Any, Solicited, Some(1)),
        (Errors, Any, Some(1)),
        // Errors of the CQ itself always make an event.
        (Errors, Errors, None),
        (Errors, Solicited, Some(2)),
        (Solicited, Any, Some(1)),
        (Solicited, Errors, Some(2)),
        (Solicited, Solicited, Some(2)),
    ];
    for (first, second, expected) in cases {
        let card = FakeCard::new();
        let (_adapter, cq, _sq) = connected(&card, recorder().1);
        cq.arm(first);
        cq.arm(second);
        assert_eq!(card.state().cqs[&0].armed, expected, "{first:?} then {second:?}");
    }
}

#[test]
fn a_failed_request_satisfies_a_solicited_arm_and_its_fault_is_told() {
    let (card, (notices, callback)) = (FakeCard::new(), recorder());
    let (adapter, cq, mut sq) = connected(&card, callback);
    let faults = Arc::new(Mutex::new(Vec::new()));
    let record = faults.clone();
    sq.qp().set_fault_callback(Box::new(move |qp, fault| record.lock().unwrap().push((qp.qpn(), fault, qp.state()))));
    card.state().hold_requests = true;
    cq.arm(ArmKind::Solicited);
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    sq.write(2, &[], 0, 0, WriteFlags::NONE).unwrap();
    card.complete(2, 1);
    adapter.process_events();
    assert!(notices.lock().unwrap().is_empty());
    card.fail(2, CqeStatus::RetryExceeded, 0);
    adapter.process_events();
    assert_eq!(notices.lock().unwrap().len(), 1);
    let fault = QpFault::Requester { code: 12, status: Some(CqeStatus::RetryExceeded) };
    assert_eq!(*faults.lock().unwrap(), [(2, fault, QpState::Error)]);
    assert_eq!(sq.qp().fault(), Some(fault));
    assert!(matches!(sq.write(3, &[], 0, 0, WriteFlags::NONE), Err(Error::NotConnected { state: QpState::Error, .. })));
}

#[test]
fn a_refused_request_of_the_peer_is_told_with_its_syndrome() {
    let bench = Bench::new(4);
    bench.card.event(EventKind::QpAccess as u8, 2, 0x62);
    bench.adapter.process_events();
    assert_eq!(bench.qp.fault(), Some(QpFault::Access { syndrome: 0x62 }));
    assert_eq!(bench.qp.state(), QpState::Error);
}

#[test]
fn an_overrun_kills_the_cq_and_its_qps_and_answers_every_arm() {
    let (card, (notices, callback)) = (FakeCard::new(), recorder());
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 2, Some(callback)).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(8)).unwrap();
    qp.connect_blocking(&peer()).unwrap();
    let mut sq = qp.take_send_queue().unwrap();
    for context in 0..3 {
        sq.write(context, &[], 0, 0, WriteFlags::NONE).unwrap();
    }
    adapter.process_events();
    assert_eq!(*notices.lock().unwrap(), [], "nobody has asked");
    assert!(cq.is_dead());
    assert_eq!(adapter.anomalies().dead_cqs(), 1);
    assert_eq!(drain(&cq), []);
    assert_eq!(qp.state(), QpState::Error);
    // The card says so again: it is one CQ.
    card.event(EventKind::CqOverrun as u8, cq.cqn(), 0);
    adapter.process_events();
    assert_eq!(adapter.anomalies().dead_cqs(), 1);
    for kind in [ArmKind::Errors, ArmKind::Any, ArmKind::Solicited] {
        cq.arm(kind);
        assert_eq!(notices.lock().unwrap().len(), 0, "not on the caller's stack");
        adapter.process_events();
        assert_eq!(std::mem::take(&mut *notices.lock().unwrap()), [CqNotice::Overrun]);
    }
    drop((sq, qp, pd, cq));
    adapter.close_blocking().unwrap();
}

/// A QP whose queues complete on two CQs, and the faults that are told.
type Faults = Arc<Mutex<Vec<QpFault>>>;

fn with_two_cqs(card: &Arc<FakeCard>) -> (Arc<Adapter>, [Arc<Cq>; 2], Arc<Qp>, Faults) {
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cqs = [(); 2].map(|()| Cq::create_blocking(&adapter, 8, None).unwrap());
    let options = QpOptions { receive_depth: 2, ..QpOptions::sender(8) };
    let qp = Qp::create_blocking(&pd, &cqs[0], &cqs[1], options).unwrap();
    qp.connect_blocking(&peer()).unwrap();
    let faults = Faults::default();
    let told = faults.clone();
    qp.set_fault_callback(Box::new(move |_, fault| told.lock().unwrap().push(fault)));
    (adapter, cqs, qp, faults)
}

#[test]
fn an_overrun_of_either_cq_kills_both_queues_of_a_qp_on_the_card_too() {
    for dead in [0, 1] {
        let card = FakeCard::new();
        let (adapter, cqs, qp, faults) = with_two_cqs(&card);
        let (mut sq, mut rq) = (qp.take_send_queue().unwrap(), qp.take_receive_queue().unwrap());
        rq.post(7, &[]).unwrap();
        card.state().hold_requests = true;
        sq.write(8, &[], 0, 0, WriteFlags::NONE).unwrap();
        card.event(EventKind::CqOverrun as u8, cqs[dead].cqn(), 0);
        adapter.process_events();
        assert_eq!(*faults.lock().unwrap(), [QpFault::CqOverrun { cqn: cqs[dead].cqn() }]);
        assert!(matches!(sq.write(9, &[], 0, 0, WriteFlags::NONE), Err(Error::NotConnected { state: QpState::Error, .. })));
        assert!(matches!(rq.post(9, &[]), Err(Error::ReceivesStopped { .. })));
        assert_eq!(card.state().qps[&qp.qpn()].context.state, QpState::Error as u8, "the peer writes nothing any more");
        let found = [0, 1].map(|cq| drain(&cqs[cq]).iter().map(|entry| entry.context).collect::<Vec<_>>());
        assert_eq!(found, if dead == 0 { [vec![], vec![7]] } else { [vec![8], vec![]] }, "what the other one has is given");
    }
}

#[test]
fn a_cq_that_was_overrun_takes_no_qp_any_more() {
    let card = FakeCard::new();
    let (adapter, cqs, qp, _) = with_two_cqs(&card);
    // The creation is under way when the CQ dies.
    card.state().hold_commands = true;
    let created = Arc::new(Mutex::new(None));
    let answer = created.clone();
    let _ = Qp::create(qp.pd(), &cqs[1], &cqs[0], QpOptions::sender(1), move |qp| *answer.lock().unwrap() = Some(qp.unwrap())).unwrap();
    card.event(EventKind::CqOverrun as u8, cqs[0].cqn(), 0);
    adapter.process_events();
    card.state().hold_commands = false;
    while card.step() {
        adapter.process_events();
    }
    let late = created.lock().unwrap().take().expect("the QP");
    assert_eq!((late.state(), late.fault()), (QpState::Error, Some(QpFault::CqOverrun { cqn: cqs[0].cqn() })));
    for (send, receive) in [(0, 1), (1, 0)] {
        let error = Qp::create_blocking(qp.pd(), &cqs[send], &cqs[receive], QpOptions::sender(1)).unwrap_err();
        assert_eq!(error.to_string(), "CQ 0 was overrun: nothing completes on it any more");
    }
}

#[test]
fn a_wait_takes_the_interrupts_that_have_ended_it() {
    let card = FakeCard::new();
    let (adapter, cq, mut sq) = connected(&card, recorder().1);
    card.take_interrupts();
    cq.arm(ArmKind::Any);
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    adapter.wait();
    assert_eq!(card.take_interrupts(), 0, "or each later wait would end at once");
}

#[test]
fn an_overrun_satisfies_an_arm_of_every_kind() {
    for kind in [ArmKind::Errors, ArmKind::Any, ArmKind::Solicited] {
        let (card, (notices, callback)) = (FakeCard::new(), recorder());
        let (adapter, cq, _sq) = connected(&card, callback);
        cq.arm(kind);
        card.event(EventKind::CqOverrun as u8, cq.cqn(), 0);
        adapter.process_events();
        assert_eq!(*notices.lock().unwrap(), [CqNotice::Overrun], "{kind:?}");
    }
}

#[test]
fn flushed_receives_are_polled_in_order_and_satisfy_one_arm() {
    for (kind, calls) in [(ArmKind::Errors, 0), (ArmKind::Any, 1), (ArmKind::Solicited, 1)] {
        let (notices, callback) = recorder();
        let adapter = Adapter::open(FakeCard::new(), config()).unwrap();
        let pd = Pd::create(&adapter).unwrap();
        let cq = Cq::create_blocking(&adapter, 4, Some(callback)).unwrap();
        let options = QpOptions { receive_depth: 2, receive_sges: 1, context: 5, ..QpOptions::sender(2) };
        let qp = Qp::create_blocking(&pd, &cq, &cq, options).unwrap();
        let mut rq = qp.take_receive_queue().unwrap();
        rq.post(1, &[]).unwrap();
        rq.post(2, &[]).unwrap();
        assert!(matches!(rq.post(3, &[]), Err(Error::QueueFull { queue: "receive", depth: 2, .. })));
        cq.arm(kind);
        adapter.process_events();
        assert_eq!((notices.lock().unwrap().len(), drain(&cq)), (0, vec![]), "a receive waits for a message");
        qp.flush();
        assert_eq!(notices.lock().unwrap().len(), 0, "not on the caller's stack");
        adapter.process_events();
        assert_eq!(notices.lock().unwrap().len(), calls, "{kind:?}");
        let flushed: Vec<_> = drain(&cq).iter().map(|c| (c.qp_context, c.context, c.op, c.status)).collect();
        let entry = |context| (5, context, Operation::Receive, CompletionStatus::Card(CqeStatus::Flushed));
        assert_eq!(flushed, [entry(1), entry(2)]);
        assert!(matches!(rq.post(3, &[]), Err(Error::ReceivesStopped { .. })));
    }
}

#[test]
fn a_flushed_receive_that_is_polled_before_its_notification_leaves_it_due_once() {
    let (notices, callback) = recorder();
    let adapter = Adapter::open(FakeCard::new(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 4, Some(callback)).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions { receive_depth: 2, ..QpOptions::sender(1) }).unwrap();
    let mut rq = qp.take_receive_queue().unwrap();
    rq.post(1, &[]).unwrap();
    cq.arm(ArmKind::Any);
    qp.flush();
    assert_eq!(drain(&cq).len(), 1);
    adapter.process_events();
    assert_eq!(*notices.lock().unwrap(), [CqNotice::Completion], "as for an entry of the card's");
    // An arm behind it has nothing to tell.
    cq.arm(ArmKind::Any);
    adapter.process_events();
    assert_eq!(notices.lock().unwrap().len(), 1);
}

#[test]
fn a_failure_that_is_polled_while_the_card_answers_an_earlier_arm_is_told() {
    for (fails, calls) in [(true, 2), (false, 1)] {
        let (card, (notices, callback)) = (FakeCard::new(), recorder());
        let (adapter, cq, mut sq) = connected(&card, callback);
        let options = QpOptions { receive_depth: 1, ..QpOptions::sender(1) };
        let other = Qp::create_blocking(sq.qp().pd(), &cq, &cq, options).unwrap();
        other.take_receive_queue().unwrap().post(1, &[]).unwrap();
        card.state().hold_requests = true;
        sq.write(2, &[], 0, 0, WriteFlags::NONE).unwrap();
        // The driver itself satisfies this one, and the card is armed still.
        cq.arm(ArmKind::Any);
        other.flush();
        adapter.process_events();
        assert_eq!((notices.lock().unwrap().len(), drain(&cq).len()), (1, 1));
        cq.arm(ArmKind::Solicited);
        if fails {
            card.fail(sq.qp().qpn(), CqeStatus::RetryExceeded, 0);
        } else {
            card.complete(sq.qp().qpn(), 1);
        }
        assert_eq!(drain(&cq).len(), 1, "polled before the event is processed");
        adapter.process_events();
        assert_eq!(notices.lock().unwrap().len(), calls, "failure: {fails}");
        // Once.
        adapter.process_events();
        cq.arm(ArmKind::Solicited);
        adapter.process_events();
        assert_eq!(notices.lock().unwrap().len(), calls, "failure: {fails}");
    }
}

#[test]
fn receives_of_a_qp_that_is_gone_are_still_polled() {
    let adapter = Adapter::open(FakeCard::new(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions { receive_depth: 2, ..QpOptions::sender(1) }).unwrap();
    let mut rq = qp.take_receive_queue().unwrap();
    rq.post(7, &[]).unwrap();
    drop(rq);
    qp.close_blocking().unwrap();
    assert_eq!(drain(&cq).iter().map(|c| c.context).collect::<Vec<_>>(), [7]);
    assert_eq!(drain(&cq), []);
}

#[test]
fn a_dead_cq_leaves_others_alone() {
    let bench = Bench::new(4);
    let other = Cq::create_blocking(&bench.adapter, 4, None).unwrap();
    bench.card.event(EventKind::CqOverrun as u8, other.cqn(), 0);
    bench.adapter.process_events();
    assert!(other.is_dead() && !bench.cq.is_dead());
    assert_eq!(bench.qp.state(), QpState::Rts);
}

#[test]
fn the_rings_wrap_with_their_phase() {
    let mut bench = Bench::new(2);
    let mut posted = 0;
    // Several laps of the CQ, and of the event queue of 2048 entries.
    for _ in 0..3000 {
        bench.cq.arm(ArmKind::Any);
        for _ in 0..2 {
            bench.sq.write(posted, &[], 0, 0, WriteFlags::NONE).unwrap();
            posted += 1;
        }
        assert_eq!(bench.adapter.process_events(), 1);
        assert_eq!(bench.drain().iter().map(|c| c.context).collect::<Vec<_>>(), [posted - 2, posted - 1]);
    }
    let consumer = bench.card.state().registers[&EqConsumer::OFFSET];
    assert_eq!(consumer as usize, 3000 + bench.card.state().commands.len());
}

#[test]
fn a_long_run_of_events_is_published_on_the_way() {
    let bench = Bench::new(2);
    let before = bench.card.state().commands.len() as u32;
    for _ in 0..200 {
        bench.card.event(EventKind::QpAccess as u8, 99, 0);
    }
    assert_eq!(bench.adapter.process_events(), 200);
    assert_eq!(bench.card.state().registers[&EqConsumer::OFFSET], before + 200);
}

#[test]
fn a_callback_that_processes_events_is_not_called_inside_itself() {
    let card = FakeCard::new();
    let depth = Arc::new(Mutex::new((0, 0)));
    let record = depth.clone();
    let callback: CqCallback = Box::new(move |cq, _| {
        {
            let mut depth = record.lock().unwrap();
            depth.0 += 1;
            assert_eq!(depth.0, 1, "callbacks of a CQ never overlap");
            depth.1 += 1;
        }
        let calls = record.lock().unwrap().1;
        if calls == 1 {
            // An entry is there that was not polled: this fires, and may not do so here.
            cq.arm(ArmKind::Any);
            assert_eq!(cq.adapter().process_events(), 0);
        }
        record.lock().unwrap().0 -= 1;
    });
    let (adapter, cq, mut sq) = connected(&card, callback);
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    cq.arm(ArmKind::Any);
    adapter.process_events();
    assert_eq!(depth.lock().unwrap().1, 2, "the outer call takes what the inner one left");
}

#[test]
fn nonsense_in_the_queues_is_counted_and_nothing_else() {
    let mut bench = Bench::new(4);
    bench.card.state().hold_requests = true;
    bench.sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    for (kind, number) in [(0, 0), (99, 1), (1, 77), (1, u32::MAX), (2, u32::MAX), (3, 255), (4, 0), (5, 1 << 24)] {
        bench.card.event(kind, number, 0);
    }
    bench.card.event(EventKind::Command as u8, 999, 0);
    bench.adapter.process_events();
    assert_eq!(bench.adapter.anomalies().unknown_events(), 8, "a stale tag is no anomaly");

    // QPs that do not exist, requests that were not posted.
    for (qpn, wqe_index) in [(0u32, 0u16), (3, 0), (u32::MAX, 0), (2, 1)] {
        let cqe = Cqe { qpn: qpn.into(), wqe_index: wqe_index.into(), ..Cqe::default() };
        bench.card.completion(0, cqe);
    }
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.adapter.anomalies().stray_completions(), 4);
    bench.card.complete(2, 1);
    assert_eq!(bench.drain().len(), 1);
    // The same completion again.
    bench.card.completion(0, Cqe { qpn: 2.into(), ..Cqe::default() });
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.adapter.anomalies().stray_completions(), 5);
}

#[test]
fn an_unknown_status_ends_the_request_all_the_same() {
    let mut bench = Bench::new(4);
    bench.card.state().hold_requests = true;
    bench.sq.write(8, &[], 0, 0, WriteFlags::NONE).unwrap();
    bench.card.completion(0, Cqe { qpn: 2.into(), status: 0xAA, ..Cqe::default() });
    let completions = bench.drain();
    assert_eq!((completions[0].context, completions[0].status.raw(), completions[0].status.is_success()), (8, 0xAA, false));
}

#[test]
fn counters_are_read_by_name() {
    let bench = Bench::new(4);
    bench.card.state().registers.insert(Counter::TxNaks.offset(), 12);
    let counters = bench.adapter.read_counters();
    assert_eq!((counters.get(Counter::TxNaks), counters.get(Counter::RxFrames)), (12, 0));
    assert!(counters.iter().any(|pair| pair == ("TxNaks", 12)));
}

#[test]
fn stages_are_held_read_and_compared_over_a_wrap() {
    let bench = Bench::new(4);
    let set = |offset: u32, value: u32| bench.card.state().registers.insert(offset, value);
    set(Clocks::OFFSET, 0xFFFF_FF00);
    for (stage, _, _) in Stage::ALL {
        set(stage.beats_offset(), 0xFFFF_FFC0 + *stage as u32);
        set(stage.stalls_offset(), 1000 * *stage as u32);
    }
    bench.adapter.hold_stages(true).unwrap();
    assert_eq!(bench.card.state().registers[&StageControl::OFFSET], 1);
    let before = bench.adapter.read_stages().unwrap();
    assert_eq!(before.clocks(), 0xFFFF_FF00);
    let heads = StageCount {
        stage: Stage::RxHeads,
        name: "RxHeads",
        beats: 0xFFFF_FFC0 + Stage::RxHeads as u32,
        stalls: 1000 * Stage::RxHeads as u32,
    };
    assert_eq!(before.get(Stage::RxHeads), heads);
    bench.adapter.hold_stages(false).unwrap();
    assert_eq!(bench.card.state().registers[&StageControl::OFFSET], 0);

    set(Clocks::OFFSET, 0x0000_0100);
    for (stage, _, _) in Stage::ALL {
        set(stage.beats_offset(), (0xFFFF_FFC0 + *stage as u32).wrapping_add(64 + *stage as u32));
        set(stage.stalls_offset(), 1000 * *stage as u32 + 7);
    }
    let counted = bench.adapter.read_stages().unwrap().since(&before);
    assert_eq!(counted.clocks(), 0x200);
    assert_eq!(counted.iter().count(), Stage::COUNT);
    for ((stage, name, _), count) in Stage::ALL.iter().zip(counted.iter()) {
        assert_eq!(count, StageCount { stage: *stage, name, beats: 64 + *stage as u32, stalls: 7 });
    }
}

#[test]
fn moderation_is_one_word_with_the_limits_that_decide() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    assert!(adapter.can_moderate());
    let cq = Cq::create_blocking(&adapter, 8, None).unwrap();
    let (none, off) = (Moderation::NO_LIMIT, Moderation::OFF);
    let of = |interval_us, count| Moderation { interval_us, count };
    for (interval, count, expected) in [
        (20, 3, of(20, 3)),
        (20, 8, of(20, 8)),
        (20, 9, of(20, none)),
        (20, u32::MAX, of(20, none)),
        (u32::MAX, 8, of(none, 8)),
        // As long as 16 bits allow, but not longer than was asked for.
        (70_000, 2, of(65_534, 2)),
        (65_535, 2, of(65_534, 2)),
        (0, 5, off),
        (0, u32::MAX, off),
        (7, 0, off),
        (7, 1, off),
        (u32::MAX, 1, off),
    ] {
        cq.moderate(interval, count).unwrap();
        assert_eq!(card.state().moderations.pop(), Some((cq.cqn(), expected.word())), "{interval} us, {count}");
    }
    for count in [9, u32::MAX] {
        assert!(matches!(cq.moderate(u32::MAX, count), Err(Error::UnlimitedModeration)));
    }
    assert!(card.state().moderations.is_empty());
}

#[test]
fn a_card_of_an_older_interface_lacks_what_came_later() {
    let (major, minor) = verbena_abi::ABI_VERSION;
    let names = ["stages", "moderation", "traffic"];
    for has in 0..=names.len() as u32 {
        let card = FakeCard::new();
        card.state().registers.insert(AbiVersion::OFFSET, 0x0001_0000 + has);
        let adapter = Adapter::open(card.clone(), config()).unwrap();
        let cq = Cq::create_blocking(&adapter, 8, None).unwrap();
        assert_eq!(adapter.can_moderate(), has >= 2);
        let tries = [
            adapter.hold_stages(true).and_then(|()| adapter.read_stages()).map(drop),
            cq.moderate(20, 3),
            adapter.read_traffic().map(drop),
        ];
        for (since, (name, tried)) in (1..).zip(names.into_iter().zip(tries)) {
            if has >= since {
                tried.unwrap();
                continue;
            }
            let message = format!("the card speaks interface 1.{has}, this driver {major}.{minor}");
            assert_eq!(tried.unwrap_err().to_string(), message, "{name}");
        }
        assert_eq!(card.state().registers.contains_key(&StageControl::OFFSET), has >= 1, "the register was written all the same");
        assert_eq!(card.state().moderations.is_empty(), has < 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_in_the_queues_make_the_driver_panic(
        events in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u8>()), 0..40),
        entries in proptest::collection::vec(any::<[u8; 32]>(), 0..4),
    ) {
        let mut bench = Bench::new(4);
        bench.card.state().hold_requests = true;
        bench.sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
        for (kind, number, code) in events {
            bench.card.event(kind % 8, number % 4, code);
        }
        bench.adapter.process_events();
        for bytes in entries {
            let mut cqe: Cqe = zerocopy::transmute!(bytes);
            cqe.qpn = (cqe.qpn.get() % 3).into();
            bench.card.completion(0, cqe);
        }
        let mut batch = [Completion::default(); 2];
        while bench.cq.poll(&mut batch) > 0 {}
        let _ = bench.sq.write(2, &[], 0, 0, WriteFlags::NONE);
        let _ = bench.sq.free_slots();
    }
}
