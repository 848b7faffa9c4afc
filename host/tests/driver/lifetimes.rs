//! Creating and closing: in any order, and each callback once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use verbena_abi::limits;
use verbena_abi::queue::CommandOp;
use verbena_host::adapter::ObjectCounts;
use verbena_host::command::MAX_WAITING_COMMANDS;
use verbena_host::cq::Operation;
use verbena_host::qp::QpFault;
use verbena_host::{access, Adapter, ArmKind, CloseStatus, Cq, CqeStatus, DmaBuffer, Error, Mr, Pd, Qp, QpOptions, QpState, WriteFlags};

use crate::fake_card::FakeCard;
use crate::{config, drain, peer, Bench};

/// Counts calls.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn one(&self) -> impl FnOnce() + Send + 'static {
        let calls = self.0.clone();
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn held() -> (Arc<FakeCard>, Arc<Adapter>) {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    card.state().hold_commands = true;
    (card, adapter)
}

#[test]
fn a_creation_pends_until_the_card_is_done_and_calls_back_once() {
    let (card, adapter) = held();
    let created = Arc::new(Mutex::new(Vec::new()));
    let answer = created.clone();
    let _ = Cq::create(&adapter, 4, None, move |cq| answer.lock().unwrap().push(cq.unwrap())).unwrap();
    adapter.process_events();
    assert!(created.lock().unwrap().is_empty());
    card.step();
    assert!(created.lock().unwrap().is_empty(), "callbacks run in process_events and nowhere else");
    adapter.process_events();
    adapter.process_events();
    assert!(!adapter.poll_command(), "the event was first, so the status register has nothing to add");
    assert_eq!(created.lock().unwrap().len(), 1);
}

#[test]
fn commands_wait_their_turn_in_the_order_of_their_calls() {
    let (card, adapter) = held();
    let order = Arc::new(Mutex::new(Vec::new()));
    for depth in 1..=5 {
        let order = order.clone();
        let _ = Cq::create(&adapter, depth, None, move |cq| order.lock().unwrap().push(cq.unwrap().depth())).unwrap();
    }
    // The fake card panics if a command is started while another is with it.
    while card.step() {
        adapter.process_events();
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn the_commands_that_wait_are_bounded_but_closing_is_not() {
    let (card, adapter) = held();
    let pd = Pd::create(&adapter).unwrap();
    card.state().hold_commands = false;
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(4)).unwrap();
    card.state().hold_commands = true;
    for _ in 0..=MAX_WAITING_COMMANDS {
        let _ = qp.query(|_| ()).unwrap();
    }
    let error = qp.query(|_| panic!("an inline error has no callback")).unwrap_err();
    assert_eq!(error.to_string(), "1024 commands wait for the card already");
    let error = Cq::create(&adapter, 4, None, |_| panic!("an inline error has no callback")).unwrap_err();
    assert!(matches!(error, Error::TooManyCommands { limit: 1024 }));
    let calls = Calls::default();
    assert_eq!(qp.close(calls.one()), CloseStatus::Pending);
    while card.step() {
        adapter.process_events();
    }
    assert_eq!(calls.count(), 1);
}

#[test]
fn an_object_can_be_used_and_closed_inside_its_own_creation_callback() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    let calls = Calls::default();
    let closed = calls.clone();
    let _ = Qp::create(&pd, &cq, &cq, QpOptions::sender(4), move |qp| {
        let qp = qp.unwrap();
        let inner = qp.clone();
        let _ = qp
            .connect(&peer(), move |outcome| {
                outcome.unwrap();
                inner.take_send_queue().unwrap().write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
                let _ = inner.close(closed.one());
            })
            .unwrap();
    })
    .unwrap();
    while calls.count() == 0 {
        assert_ne!(adapter.process_events(), 0);
    }
    assert!(card.state().qps.is_empty());
    assert_eq!(drain(&cq).len(), 1, "what was done before the close is still to be polled");
}

#[test]
fn antecedents_closed_first_finish_last_and_after_the_callbacks_of_their_successors() {
    let bench = Bench::new(4);
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(name)
    };
    let pd = bench.qp.pd().clone();
    let memory = bench.adapter.device().clone().alloc(64, 64).unwrap();
    let mr = Mr::register_blocking(&pd, memory, 0).unwrap();
    assert_eq!(pd.close(note("pd")), CloseStatus::Pending);
    assert_eq!(bench.cq.close(note("cq")), CloseStatus::Pending);
    assert_eq!(mr.close(note("mr")), CloseStatus::Pending);
    bench.adapter.process_events();
    assert_eq!(*order.lock().unwrap(), ["mr"]);
    assert_eq!(bench.qp.close(note("qp")), CloseStatus::Pending);
    bench.adapter.process_events();
    assert_eq!(*order.lock().unwrap(), ["mr"], "the send queue holds its QP");
    drop(bench.sq);
    while bench.adapter.process_events() != 0 {}
    assert_eq!(*order.lock().unwrap(), ["mr", "qp", "pd", "cq"]);
    bench.adapter.close_blocking().unwrap();
    assert!(bench.card.is_memory_free(0));
}

#[test]
fn a_domain_without_successors_closes_at_once_and_without_a_callback() {
    let adapter = Adapter::open(FakeCard::new(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    assert_eq!(pd.close(|| panic!("closed at once means no callback")), CloseStatus::Closed);
    adapter.close_blocking().unwrap();
}

#[test]
fn a_close_without_a_callback_is_a_drop() {
    let bench = Bench::new(4);
    let Bench { card, adapter, cq, qp, sq } = bench;
    drop((cq, qp, sq));
    adapter.close_blocking().unwrap();
    let state = card.state();
    assert!(state.qps.is_empty() && state.cqs.is_empty());
}

#[test]
fn closing_an_adapter_with_objects_says_how_many_are_left() {
    let bench = Bench::new(4);
    let error = bench.adapter.clone().close_blocking().unwrap_err();
    assert!(error.to_string().contains("holders of the adapter remain"), "{error}");
}

#[test]
fn numbers_are_reused_late_and_keys_change_with_each_registration() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let memory = DmaBuffer::on_heap(64, 64, 0).unwrap();
    let mut keys = Vec::new();
    let last = limits::MRS - 1;
    for _ in 0..2 * last {
        let mr = Mr::register_blocking(&pd, memory.clone(), 0).unwrap();
        keys.push(mr.rkey());
        mr.close_blocking().unwrap();
    }
    assert_eq!((keys[0] >> 8, keys[last - 1] >> 8, keys[last] >> 8), (1, last as u32, 1));
    assert_ne!(keys[0], keys[last], "the same region has another key");
    assert!(keys.iter().all(|key| key >> 8 != 0));

    let all: Vec<_> = (0..last).map(|_| Mr::register_blocking(&pd, memory.clone(), 0).unwrap()).collect();
    let error = Mr::register_blocking(&pd, memory, 0).unwrap_err();
    assert_eq!(error.to_string(), format!("all {last} memory regions are in use"));
    drop(all);
}

#[test]
fn closing_a_qp_flushes_what_is_outstanding_before_it_leaves() {
    let mut bench = Bench::new(4);
    bench.card.state().hold_requests = true;
    for context in 0..3 {
        let flags = if context == 1 { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
        bench.sq.write(context, &[], 0, 0, flags).unwrap();
    }
    bench.sq.write(3, &[], 0, 0, WriteFlags::DEFER).unwrap();
    let calls = Calls::default();
    let Bench { card, adapter, cq, qp, sq } = bench;
    drop(sq);
    let _ = qp.close(calls.one());
    while adapter.process_events() != 0 {}
    assert_eq!(calls.count(), 1);
    let contexts: Vec<_> = drain(&cq).iter().map(|c| (c.context, c.status.raw())).collect();
    assert_eq!(contexts, [(0, 5), (1, 5), (2, 5), (3, 5)], "all of them, flushed, in order");
    let state = card.state();
    assert_eq!(state.commands[state.commands.len() - 2..], [(CommandOp::ModifyQp, 2), (CommandOp::DestroyQp, 2)]);
}

#[test]
fn completions_of_a_closed_qp_keep_their_contexts_when_its_number_is_used_again() {
    let mut bench = Bench::with_options(QpOptions { context: 1, ..QpOptions::sender(4) }, 8);
    bench.sq.write(100, &[], 0, 0, WriteFlags::NONE).unwrap();
    let pd = bench.qp.pd().clone();
    let Bench { adapter, cq, qp, sq, card } = bench;
    drop(sq);
    qp.close_blocking().unwrap();
    // All other numbers once, so that the first one comes back.
    for _ in 0..limits::QPS as u32 - limits::FIRST_QPN - 1 {
        Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(1)).unwrap().close_blocking().unwrap();
    }
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions { context: 2, ..QpOptions::sender(4) }).unwrap();
    assert_eq!(qp.qpn(), limits::FIRST_QPN);
    qp.connect_blocking(&peer()).unwrap();
    let mut sq = qp.take_send_queue().unwrap();
    sq.write(200, &[], 0, 0, WriteFlags::NONE).unwrap();
    let found: Vec<_> = drain(&cq).iter().map(|c| (c.qp_context, c.context)).collect();
    assert_eq!(found, [(1, 100), (2, 200)]);
    assert_eq!(adapter.anomalies().stray_completions(), 0);
    drop(card);
}

#[test]
fn a_card_that_goes_away_fails_everything_once_and_frees_everything() {
    let (card, adapter) = held();
    let pd = Pd::create(&adapter).unwrap();
    card.state().hold_commands = false;
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(4)).unwrap();
    card.state().hold_commands = true;
    let failed = Calls::default();
    for _ in 0..3 {
        let one = failed.one();
        let _ = qp
            .query(move |outcome| {
                assert!(matches!(outcome, Err(Error::DeviceRemoved { .. })));
                one();
            })
            .unwrap();
    }
    card.state().is_gone = true;
    assert!(adapter.poll_command());
    assert_eq!(failed.count(), 0, "callbacks run in process_events and nowhere else");
    adapter.process_events();
    assert_eq!(failed.count(), 3);
    assert!(!adapter.poll_command(), "it can't go twice");
    assert!(matches!(qp.query(|_| ()), Err(Error::DeviceRemoved { .. })));
    let calls = Calls::default();
    let _ = (cq.close(calls.one()), qp.close(calls.one()));
    assert_eq!(calls.count(), 2, "there is nobody to wait for");
    drop(pd);
    adapter.close_blocking().unwrap();
    assert!(card.is_memory_free(0));
}

/// A CQ whose calls are counted.
fn counted_cq(adapter: &Arc<Adapter>) -> (Arc<Cq>, Calls) {
    let calls = Calls::default();
    let notified = calls.clone();
    let cq = Cq::create_blocking(adapter, 32, Some(Box::new(move |_, _| notified.one()()))).unwrap();
    (cq, calls)
}

/// Takes a card away with requests outstanding. The arm is in force by then, or comes later and behind an entry of the card's.
fn card_goes_away_without_a_command(is_armed: bool) {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let (cq, calls) = counted_cq(&adapter);
    let options = |context| QpOptions { context, receive_depth: 2, ..QpOptions::sender(8) };
    let qps = [1, 2].map(|context| Qp::create_blocking(&pd, &cq, &cq, options(context)).unwrap());
    let faults = Arc::new(Mutex::new(Vec::new()));
    let mut queues = qps.each_ref().map(|qp| {
        qp.connect_blocking(&peer()).unwrap();
        let told = faults.clone();
        qp.set_fault_callback(Box::new(move |qp, fault| told.lock().unwrap().push((qp.qpn(), fault))));
        qp.take_send_queue().unwrap()
    });
    card.state().hold_requests = true;
    let flags = [WriteFlags::NONE, WriteFlags::NONE, WriteFlags::SILENT_SUCCESS, WriteFlags::DEFER];
    for (queue, first) in queues.iter_mut().zip([10, 20]) {
        for (context, flags) in (first..).zip(flags) {
            queue.write(context, &[], 0, 0, flags).unwrap();
        }
    }
    qps[1].take_receive_queue().unwrap().post(30, &[]).unwrap();
    if is_armed {
        cq.arm(ArmKind::Any);
    } else {
        card.complete(qps[0].qpn(), 1);
    }

    // No command is under way, and no event tells.
    card.state().is_gone = true;
    adapter.process_events();
    assert_eq!((calls.count(), faults.lock().unwrap().len()), (0, 0), "nobody has looked");
    assert!(adapter.poll_command());
    adapter.process_events();
    if !is_armed {
        cq.arm(ArmKind::Any);
        adapter.process_events();
    }
    assert_eq!(calls.count(), 1, "there is something to poll");
    let fault = QpFault::DeviceRemoved;
    assert_eq!(*faults.lock().unwrap(), [(qps[0].qpn(), fault), (qps[1].qpn(), fault)]);
    for queue in &mut queues {
        assert!(matches!(queue.write(99, &[], 0, 0, WriteFlags::NONE), Err(Error::NotConnected { .. })));
    }
    // The second QP leaves before anybody polls.
    let [first, second] = qps;
    let [first_queue, second_queue] = queues;
    drop((second, second_queue));

    let entries = drain(&cq);
    let of = |qp: u64| entries.iter().filter(move |entry| entry.qp_context == qp && entry.op != Operation::Receive);
    let statuses = |qp| of(qp).map(|entry| (entry.context, entry.status.raw())).collect::<Vec<_>>();
    let (ok, flushed) = (CqeStatus::Success as u8, CqeStatus::Flushed as u8);
    let oldest = if is_armed { flushed } else { ok };
    assert_eq!(statuses(1), [(10, oldest), (11, flushed), (12, flushed), (13, flushed)]);
    assert_eq!(statuses(2), [(20, flushed), (21, flushed), (22, flushed), (23, flushed)]);
    let receives: Vec<_> = entries.iter().filter(|entry| entry.op == Operation::Receive).map(|entry| entry.context).collect();
    assert_eq!(receives, [30]);
    assert_eq!(drain(&cq), []);
    assert_eq!(adapter.anomalies().stray_completions(), 0);
    drop((first, first_queue, cq, pd));
    adapter.close_blocking().unwrap();
    assert!(card.is_memory_free(0));
}

#[test]
fn what_is_outstanding_on_a_card_that_goes_away_completes_in_order_behind_what_the_card_has_written() {
    card_goes_away_without_a_command(true);
    card_goes_away_without_a_command(false);
}

/// A connected QP with its CQ, whose calls are counted, on a card that is about to go away.
fn about_to_go(flags: &[WriteFlags]) -> (Arc<FakeCard>, Arc<Adapter>, Arc<Cq>, Arc<Qp>, Calls) {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let (cq, calls) = counted_cq(&adapter);
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(8)).unwrap();
    qp.connect_blocking(&peer()).unwrap();
    let mut queue = qp.take_send_queue().unwrap();
    for (context, flags) in (0..).zip(flags) {
        queue.write(context, &[], 0, 0, *flags).unwrap();
    }
    (card, adapter, cq, qp, calls)
}

fn go_away(card: &FakeCard, adapter: &Arc<Adapter>) {
    card.state().is_gone = true;
    assert!(adapter.poll_command());
    adapter.process_events();
}

#[test]
fn silent_requests_that_were_done_when_the_card_went_away_stay_silent() {
    let (card, adapter, cq, qp, calls) = about_to_go(&[WriteFlags::SILENT_SUCCESS; 2]);
    card.state().hold_requests = true;
    cq.arm(ArmKind::Any);
    go_away(&card, &adapter);
    assert_eq!((drain(&cq), calls.count()), (vec![], 0), "the progress record says that they are done");
    drop(qp);
    adapter.process_events();
    assert_eq!(drain(&cq), []);
}

#[test]
fn an_arm_on_a_card_that_is_gone_is_answered_if_there_is_anything_to_poll_or_was() {
    // What the driver ends is polled before the call.
    let (card, adapter, cq, qp, calls) = about_to_go(&[]);
    card.state().hold_requests = true;
    let mut queue = qp.take_send_queue().unwrap();
    queue.write(5, &[], 0, 0, WriteFlags::NONE).unwrap();
    go_away(&card, &adapter);
    cq.arm(ArmKind::Any);
    assert_eq!(drain(&cq).len(), 1);
    adapter.process_events();
    assert_eq!(calls.count(), 1);
    cq.arm(ArmKind::Any);
    adapter.process_events();
    assert_eq!(calls.count(), 1, "nothing more");

    // An entry of the card's, whose QP has left since.
    let (card, adapter, cq, qp, calls) = about_to_go(&[WriteFlags::NONE]);
    drop(qp);
    adapter.process_events();
    go_away(&card, &adapter);
    cq.arm(ArmKind::Any);
    adapter.process_events();
    assert_eq!(calls.count(), 1);
    assert_eq!(drain(&cq).iter().map(|entry| entry.status.raw()).collect::<Vec<_>>(), [CqeStatus::Success as u8]);
}

#[test]
fn a_success_satisfies_no_solicited_arm_on_a_card_that_is_gone_either() {
    let (card, adapter, cq, _qp, calls) = about_to_go(&[WriteFlags::NONE]);
    go_away(&card, &adapter);
    cq.arm(ArmKind::Solicited);
    adapter.process_events();
    assert_eq!((calls.count(), drain(&cq).len()), (0, 1));
    adapter.process_events();
    assert_eq!(calls.count(), 0);
}

#[test]
fn a_command_that_ends_by_the_card_being_gone_ends_behind_the_completions() {
    let (card, adapter, cq, qp, _) = about_to_go(&[]);
    card.state().hold_requests = true;
    qp.take_send_queue().unwrap().write(9, &[], 0, 0, WriteFlags::NONE).unwrap();
    card.state().hold_commands = true;
    let (found, looked) = (Arc::new(Mutex::new(None)), cq.clone());
    let answer = found.clone();
    let _ = qp
        .query(move |outcome| {
            assert!(matches!(outcome, Err(Error::DeviceRemoved { register: "CmdResult" })), "{outcome:?}");
            *answer.lock().unwrap() = Some(drain(&looked).iter().map(|entry| entry.context).collect::<Vec<_>>());
        })
        .unwrap();
    // Its event is there, and when the results are read the card is gone.
    card.step();
    card.state().is_gone = true;
    adapter.process_events();
    assert_eq!(*found.lock().unwrap(), Some(vec![9]));
}

/// A region over memory of `bytes`, and the bus address at which that is mapped.
fn mapped_region(bytes: &mut [u8]) -> (Arc<FakeCard>, Arc<Adapter>, Arc<Mr>, u64) {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let ptr = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: the card of these tests touches no memory of a region.
    let memory = unsafe { DmaBuffer::map(card.clone(), ptr, bytes.len()) }.unwrap();
    let iova = memory.iova();
    let mr = Mr::register_blocking(&pd, memory, access::REMOTE_WRITE).unwrap();
    (card, adapter, mr, iova)
}

#[test]
fn the_memory_of_a_region_is_out_of_the_cards_reach_when_its_close_is_told() {
    for is_gone in [false, true] {
        let mut bytes = vec![0; 4096];
        let (card, adapter, mr, iova) = mapped_region(&mut bytes);
        if is_gone {
            go_away(&card, &adapter);
        }
        let (told, looked) = (Arc::new(Mutex::new(None)), card.clone());
        let answer = told.clone();
        let _ = mr.close(move || *answer.lock().unwrap() = Some(looked.state().unmapped.clone()));
        adapter.process_events();
        assert_eq!(*told.lock().unwrap(), Some(vec![iova]));
    }
}

#[test]
fn a_region_that_the_card_does_not_give_up_loses_its_memory_all_the_same() {
    let mut bytes = vec![0; 4096];
    let (card, adapter, mr, iova) = mapped_region(&mut bytes);
    card.state().refuse.push_back(3);
    mr.close_blocking().unwrap();
    // Its owner does with it what he likes from here on.
    assert_eq!(card.state().unmapped, [iova]);
    assert_eq!((adapter.anomalies().lost_objects(), adapter.objects().mrs), (1, 1));
}

#[test]
fn a_command_whose_event_does_not_come_calls_back_where_events_are_processed() {
    let (card, adapter) = held();
    card.state().is_mute = true;
    let calls = Calls::default();
    let one = calls.one();
    let _ = Cq::create(&adapter, 4, None, move |cq| {
        cq.unwrap();
        one();
    })
    .unwrap();
    assert!(!adapter.poll_command(), "the card has not done it");
    card.step();
    adapter.process_events();
    assert_eq!(calls.count(), 0);
    assert!(adapter.poll_command());
    assert_eq!(calls.count(), 0, "not on this stack");
    adapter.process_events();
    assert_eq!(calls.count(), 1);
}

#[test]
fn an_object_counts_until_the_card_has_given_it_up() {
    let (card, adapter) = held();
    let pd = Pd::create(&adapter).unwrap();
    let _ = Cq::create(&adapter, 4, None, |cq| drop(cq.unwrap())).unwrap();
    assert_eq!(adapter.objects(), ObjectCounts { cqs: 1, pds: 1, ..ObjectCounts::default() });
    card.step();
    adapter.process_events();
    assert_eq!(adapter.objects().cqs, 1, "it is being destroyed");
    card.step();
    adapter.process_events();
    drop(pd);
    assert_eq!(adapter.objects(), ObjectCounts::default());
}

#[test]
fn an_object_that_the_card_does_not_give_up_keeps_its_memory() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let cq = Cq::create_blocking(&adapter, 4, None).unwrap();
    card.state().refuse.push_back(3);
    cq.close_blocking().unwrap();
    assert_eq!(adapter.anomalies().lost_objects(), 1);
    assert!(!card.is_memory_free(1));
}

#[test]
fn domain_and_cqs_of_what_the_card_keeps_are_for_nothing_else() {
    let mut bytes = vec![0; 4096];
    let (card, adapter, mr, _) = mapped_region(&mut bytes);
    let of_mr = mr.pd().label();
    card.state().refuse.push_back(3);
    mr.close_blocking().unwrap();
    let pd = Pd::create(&adapter).unwrap();
    let cqs = [(); 3].map(|()| Cq::create_blocking(&adapter, 8, None).unwrap());
    let of_qp = pd.label();
    let cqns = [cqs[0].cqn(), cqs[1].cqn()];
    let qp = Qp::create_blocking(&pd, &cqs[0], &cqs[1], QpOptions::sender(4)).unwrap();
    drop(pd);
    card.state().refuse.push_back(3);
    qp.close_blocking().unwrap();
    assert_eq!((adapter.anomalies().lost_objects(), adapter.objects().pds), (2, 2));
    assert_ne!(of_mr, of_qp);
    // The card may still complete on them: they are closed for their consumer alone.
    let calls = Calls::default();
    for cq in cqs {
        let _ = cq.close(calls.one());
    }
    assert_eq!(calls.count(), 0, "not on this stack");
    adapter.process_events();
    assert_eq!(calls.count(), 3);
    assert_eq!((adapter.anomalies().lost_objects(), adapter.objects().cqs), (4, 2));
    for _ in 0..2 * adapter.info().max_cqs {
        let cq = Cq::create_blocking(&adapter, 8, None).unwrap();
        assert!(!cqns.contains(&cq.cqn()), "CQ {} is in use on the card", cq.cqn());
        cq.close_blocking().unwrap();
    }
    // Every other label comes around.
    for _ in 0..2 * adapter.info().max_pds {
        let label = Pd::create(&adapter).unwrap().label();
        assert!(label != of_mr && label != of_qp, "label {label} is in use on the card");
    }
}

#[test]
fn a_card_that_goes_away_keeps_nothing_more() {
    let card = FakeCard::new();
    let adapter = Adapter::open(card.clone(), config()).unwrap();
    let (pd, cq) = (Pd::create(&adapter).unwrap(), Cq::create_blocking(&adapter, 8, None).unwrap());
    let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(4)).unwrap();
    card.state().refuse.push_back(3);
    qp.close_blocking().unwrap();
    go_away(&card, &adapter);
    let calls = Calls::default();
    let _ = cq.close(calls.one());
    adapter.process_events();
    assert_eq!((calls.count(), adapter.objects().cqs, adapter.anomalies().lost_objects()), (1, 0, 1));
    // It stays gone for the driver, whatever its registers say.
    card.state().is_gone = false;
    assert!(matches!(adapter.read_traffic(), Err(Error::DeviceRemoved { register: "CmdStatus" })));
}

#[test]
fn a_flush_ends_a_connection_that_is_being_made() {
    let bench = Bench::new(4);
    let pd = bench.qp.pd().clone();
    let qp = Qp::create_blocking(&pd, &bench.cq, &bench.cq, QpOptions::sender(4)).unwrap();
    bench.card.state().hold_commands = true;
    let cancelled = Calls::default();
    let one = cancelled.one();
    let _ = qp
        .connect(&peer(), move |outcome| {
            assert!(matches!(outcome, Err(Error::Cancelled { qpn: 3 })), "{outcome:?}");
            one();
        })
        .unwrap();
    qp.flush();
    while bench.card.step() {
        bench.adapter.process_events();
    }
    assert_eq!((cancelled.count(), qp.state()), (1, QpState::Error));
    assert_eq!(bench.card.state().qps[&3].context.state, QpState::Error as u8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn objects_close_in_any_order(order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(), process in any::<[bool; 6]>()) {
        let Bench { card, adapter, cq, qp, sq } = Bench::new(4);
        let pd = qp.pd().clone();
        let other = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(2)).unwrap();
        let memory = adapter.device().clone().alloc(64, 64).unwrap();
        let mr = Mr::register_blocking(&pd, memory, 0).unwrap();
        let calls = Calls::default();
        let mut closes: Vec<Option<Box<dyn FnOnce() -> CloseStatus>>> = Vec::new();
        let done = || calls.one();
        let (a, b, c, d, e) = (done(), done(), done(), done(), done());
        closes.push(Some(Box::new(move || pd.close(a))));
        closes.push(Some(Box::new(move || cq.close(b))));
        closes.push(Some(Box::new(move || qp.close(c))));
        closes.push(Some(Box::new(move || other.close(d))));
        closes.push(Some(Box::new(move || mr.close(e))));
        closes.push(Some(Box::new(move || { drop(sq); CloseStatus::Closed })));
        let mut closed_at_once = 0;
        for (index, process) in order.into_iter().zip(process) {
            let status = closes[index].take().unwrap()();
            closed_at_once += usize::from(index != 5 && status == CloseStatus::Closed);
            if process {
                adapter.process_events();
            }
        }
        adapter.close_blocking().unwrap();
        prop_assert_eq!(calls.count() + closed_at_once, 5);
        prop_assert!(card.is_memory_free(0));
        let state = card.state();
        prop_assert!(state.qps.is_empty() && state.cqs.is_empty() && state.mrs.is_empty());
    }
}
