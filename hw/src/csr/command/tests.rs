//! Every command with every result.

use super::*;
use crate::bus::{CqEntry, MrEntry, QpContext};
use crate::testing::{Bench, Monitor, Stalls};
use rust_hdl::prelude::Signal;
use verbena_abi::queue::{CmdCq, CmdMr, CmdQp, Key};

const LAST_QP: u32 = limits::QPS as u32 - 1;
/// Clocks in which a table is cleared.
const CLEAR_CLOCKS: u64 = 1 << limits::LOG_OBJECTS;
const LAST_MR: u32 = limits::MRS as u32 - 1;

use CommandCode::{BadIndex, BadOpcode, BadParameter, BadState, InUse, NotInUse, Ok as Done};
use CommandOp::{CreateCq, CreateMr, CreateQp, DestroyCq, DestroyMr, DestroyQp, ModifyQp, QueryCq, QueryMr, QueryQp};

/// The argument structures word by word, as their documentation numbers the words.
trait Words {
    fn words(&self) -> Vec<u32>;
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn whole(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

impl Words for CmdQp {
    fn words(&self) -> Vec<u32> {
        let mac = self.remote_mac;
        let mut words = vec![
            self.qpn.get(),
            whole(&[self.state, self.flags, self.access, self.mtu]),
            u32::from(self.pd.get()) | whole(&[0, 0, self.ttl, self.traffic_class]),
            u32::from(self.send_cqn.get()) | u32::from(self.receive_cqn.get()) << 16,
            self.remote_qpn.get(),
            self.sq_psn.get(),
            self.rq_psn.get(),
            u32::from(self.source_port.get()) | u32::from(self.vlan_tci.get()) << 16,
            whole(&mac[..4]),
            whole(&mac[4..]) | u32::from(self.pkey.get()) << 16,
        ];
        words.extend(self.remote_ip.chunks(4).map(whole));
        words.extend(halves(self.sq_address.get()));
        words.extend(halves(self.progress_address.get()));
        words.push(whole(&[self.sq_log_depth, self.timeout, self.retry_count, self.rnr_retry]));
        words
    }
}

impl Words for CmdCq {
    fn words(&self) -> Vec<u32> {
        let [lo, hi] = halves(self.address.get());
        vec![self.cqn.get(), u32::from(self.log_depth), lo, hi]
    }
}

impl Words for CmdMr {
    fn words(&self) -> Vec<u32> {
        let mut words = vec![self.key.get(), u32::from(self.pd.get()) | u32::from(self.access) << 16];
        for value in [self.base_va.get(), self.len_bytes.get(), self.iova.get()] {
            words.extend(halves(value));
        }
        words
    }
}

struct Run {
    bench: Bench<CommandProcessor>,
    window: [u32; 32],
    results: [u32; 8],
    qp_writes: Vec<QpWrite>,
    mr_writes: Vec<MrWrite>,
    cq_writes: Vec<CqWrite>,
    events: Monitor<EventReq>,
    bad: usize,
    tag: u64,
    /// Numbers asked for, the newest last: the answer comes eight clocks later.
    asked: [u64; 8],
}

impl Run {
    fn new(name: &str, stalls: Stalls) -> Self {
        let bench = Bench::new(name, CommandProcessor::default(), |uut| &mut uut.clock);
        let mut run = Self {
            bench,
            window: [0; 32],
            results: [0; 8],
            qp_writes: vec![],
            mr_writes: vec![],
            cq_writes: vec![],
            events: Monitor::new(stalls),
            bad: 0,
            tag: 0x100,
            asked: [0; 8],
        };
        run.bench.uut.tables_ready.next = true;
        run
    }

    /// Returns a bench whose tables are cleared.
    fn ready(name: &str) -> Self {
        let mut run = Self::new(name, Stalls::new(31));
        while !run.bench.uut.ready.val() {
            run.step();
            assert!(run.bench.clock_count() < CLEAR_CLOCKS + 76, "the tables are not cleared");
        }
        run.forget();
        run
    }

    fn forget(&mut self) {
        self.qp_writes.clear();
        self.mr_writes.clear();
        self.cq_writes.clear();
    }

    fn step(&mut self) {
        self.bench.settle();
        let address = self.bench.uut.window_address.val().index();
        self.bench.uut.window_data.next = u64::from(self.window[address]).into();
        // The live state of a queue has its number in it, as far as it fits.
        let number = self.asked[0] & 0xFF;
        let live = |place: u64| number * 0x100 + place;
        let uut = &mut self.bench.uut;
        uut.q_next_psn.next = live(1).into();
        uut.q_unacked_psn.next = live(2).into();
        uut.q_expected_psn.next = live(3).into();
        uut.q_msn.next = live(4).into();
        uut.q_producer.next = live(5).into();
        uut.q_fetched.next = live(6).into();
        uut.q_consumer.next = live(7).into();
        uut.q_cq_producer.next = live(8).into();
        uut.q_cq_consumer.next = live(9).into();
        self.events.before(&mut uut.event_out);
        self.bench.settle();
        let uut = &self.bench.uut;
        self.events.after(&uut.event_out);
        if uut.result_write.val() {
            self.results[uut.result_index.val().index()] = uut.result_value.val().to_u64() as u32;
        }
        if uut.qp_write.val().valid {
            self.qp_writes.push(uut.qp_write.val());
        }
        if uut.mr_write.val().valid {
            self.mr_writes.push(uut.mr_write.val());
        }
        if uut.cq_write.val().valid {
            self.cq_writes.push(uut.cq_write.val());
        }
        self.bad += usize::from(uut.bad_command.val());
        self.asked.rotate_left(1);
        self.asked[7] = uut.query_qpn.val().to_u64();
        self.bench.edge();
    }

    fn load(&mut self, args: &dyn Words) {
        // Words beyond the arguments hold what an earlier command left.
        self.window = [0xDEAD_BEEF; 32];
        for (word, value) in self.window.iter_mut().zip(args.words()) {
            *word = value;
        }
    }

    fn start(&mut self, opcode: u64) {
        self.tag += 1;
        self.bench.uut.go.next = true;
        self.bench.uut.opcode.next = opcode.into();
        self.bench.uut.tag.next = self.tag.into();
        self.step();
        self.bench.uut.go.next = false;
    }

    /// Waits for the end of a command; returns its code and the clocks since `go`.
    fn wait(&mut self) -> (u64, u64) {
        let mut clocks = 1;
        self.bench.settle();
        while self.bench.uut.busy.val() {
            self.step();
            self.bench.settle();
            clocks += 1;
            assert!(clocks < 500, "the command hangs");
        }
        (self.bench.uut.code.val().to_u64(), clocks)
    }

    /// Executes a command and checks its reports; a refused one must not have written anything.
    fn run(&mut self, opcode: u64, args: &dyn Words, expected: CommandCode) -> u64 {
        self.load(args);
        while self.bench.uut.event_out.valid.val() {
            self.step();
            self.bench.settle();
        }
        self.forget();
        let (bad, events) = (self.bad, self.events.got.len());
        self.start(opcode);
        let (code, clocks) = self.wait();
        assert_eq!(code, expected as u64, "opcode {opcode}");
        assert_eq!(self.bench.uut.done_tag.val(), self.tag);
        for _ in 0..200 {
            if self.events.got.len() > events {
                break;
            }
            self.step();
        }
        let event = *self.events.got.last().expect("an event");
        assert_eq!(self.events.got.len(), events + 1);
        assert_eq!((event.number.to_u64(), event.kind.to_u64(), event.code.to_u64()), (self.tag, 2, code));
        self.step();
        self.step();
        let writes = self.qp_writes.len() + self.mr_writes.len() + self.cq_writes.len();
        if expected != Done {
            assert_eq!(writes, 0, "a refused command writes nothing");
        }
        assert_eq!(self.bad - bad, usize::from(expected != Done), "refused commands are counted");
        clocks
    }

    fn qp(&mut self, op: CommandOp, args: &CmdQp, expected: CommandCode) -> u64 {
        self.run(op as u64, args, expected)
    }

    fn cq(&mut self, op: CommandOp, args: &CmdCq, expected: CommandCode) -> u64 {
        self.run(op as u64, args, expected)
    }

    fn mr(&mut self, op: CommandOp, args: &CmdMr, expected: CommandCode) -> u64 {
        self.run(op as u64, args, expected)
    }

    fn go_to(&mut self, state: QpState, expected: CommandCode) {
        self.qp(ModifyQp, &CmdQp { state: state as u8, ..a_qp() }, expected);
    }

    /// Creates the QP of [`a_qp`] and takes it to `state`.
    fn make(&mut self, state: QpState) {
        self.qp(CreateQp, &CmdQp { state: 0, ..a_qp() }, Done);
        let path: &[QpState] = match state {
            QpState::Reset => &[],
            QpState::Init => &[QpState::Init],
            QpState::Rtr => &[QpState::Init, QpState::Rtr],
            QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
            QpState::Error => &[QpState::Init, QpState::Error],
        };
        for state in path {
            self.go_to(*state, Done);
        }
    }
}

fn a_cq() -> CmdCq {
    CmdCq { cqn: 9.into(), log_depth: 16, address: 0x1234_5678_9ABC_DE40.into(), ..Default::default() }
}

fn a_mr() -> CmdMr {
    CmdMr {
        key: Key::new(LAST_MR, 0x5A).0.into(),
        pd: 0xBEEF.into(),
        access: 0x7,
        base_va: 0x7000_0000_0000_0123.into(),
        len_bytes: 0x1_0000_0001.into(),
        iova: 0x23.into(),
        ..Default::default()
    }
}

fn a_qp() -> CmdQp {
    CmdQp {
        qpn: LAST_QP.into(),
        state: 1,
        flags: 5,
        access: 2,
        mtu: 5,
        pd: 0x1234.into(),
        ttl: 64,
        traffic_class: 8,
        send_cqn: 9.into(),
        receive_cqn: 0xFFFF.into(),
        remote_qpn: 0xAB_CDEF.into(),
        sq_psn: 0x11_2233.into(),
        rq_psn: 0x44_5566.into(),
        source_port: 0xC123.into(),
        vlan_tci: 0x7001.into(),
        remote_mac: [1, 2, 3, 4, 5, 6],
        pkey: 0xFFFF.into(),
        remote_ip: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        sq_address: 0x1111_2222_3333_4440.into(),
        progress_address: 0x5555_6666_7777_8884.into(),
        sq_log_depth: 9,
        timeout: 31,
        retry_count: 6,
        ..Default::default()
    }
}

#[test]
fn after_reset_every_entry_of_every_table_is_cleared_and_then_commands_are_taken() {
    let mut run = Run::new("command_clear", Stalls::none());
    run.bench.uut.tables_ready.next = false;
    for _ in 0..CLEAR_CLOCKS + 6 {
        run.step();
    }
    assert!(!run.bench.uut.ready.val() && !run.bench.uut.busy.val());
    run.start(1);
    run.step();
    run.step();
    assert_eq!((run.bad, run.events.got.len()), (1, 0), "a command before ready is counted and ignored");
    run.bench.uut.tables_ready.next = true;
    run.step();
    run.bench.settle();
    assert!(run.bench.uut.ready.val());
    assert_eq!(run.mr_writes.iter().map(|write| write.index.to_u64()).collect::<Vec<_>>(), (0..limits::MRS as u64).collect::<Vec<_>>());
    assert_eq!(run.qp_writes.iter().map(|write| write.qpn.to_u64()).collect::<Vec<_>>(), (0..limits::QPS as u64).collect::<Vec<_>>());
    assert_eq!(run.cq_writes.iter().map(|write| write.cqn.to_u64()).collect::<Vec<_>>(), (0..limits::CQS as u64).collect::<Vec<_>>());
    assert!(run.mr_writes.iter().all(|write| write.entry == MrEntry::default()));
    assert!(run.qp_writes.iter().all(|write| write.clear && write.context == QpContext::default()));
    assert!(run.cq_writes.iter().all(|write| write.entry == CqEntry::default()));
    run.bench.finish();
}

#[test]
fn a_completion_queue_is_created_queried_and_destroyed() {
    let mut run = Run::ready("command_cq");
    assert_eq!(run.cq(CreateCq, &a_cq(), Done), 24);
    let entry = CqEntry { valid: true, address: 0x1234_5678_9ABC_DE40u64.into(), log_depth: 16u64.into() };
    assert_eq!(run.cq_writes, [CqWrite { valid: true, cqn: 9u64.into(), entry }]);
    run.cq(CreateCq, &a_cq(), InUse);
    assert_eq!(run.cq(QueryCq, &a_cq(), Done), 32);
    assert_eq!(run.results, [1, 0x908, 0x909, 0, 0, 0, 0, 0]);
    run.bench.uut.q_cq_overrun.next = true;
    run.cq(QueryCq, &a_cq(), Done);
    assert_eq!(run.results[0], 2);
    run.cq(DestroyCq, &a_cq(), Done);
    assert_eq!(run.cq_writes, [CqWrite { valid: true, cqn: 9u64.into(), entry: CqEntry::default() }]);
    run.cq(DestroyCq, &a_cq(), NotInUse);
    run.cq(QueryCq, &a_cq(), Done);
    assert_eq!(run.results, [0; 8]);
    for op in [CreateCq, DestroyCq, QueryCq] {
        run.cq(op, &CmdCq { cqn: 256.into(), ..a_cq() }, BadIndex);
    }
    run.cq(CreateCq, &CmdCq { log_depth: 17, ..a_cq() }, BadParameter);
    run.cq(CreateCq, &CmdCq { address: 0x20.into(), ..a_cq() }, BadParameter);
    run.cq(CreateCq, &CmdCq { cqn: 0.into(), log_depth: 0, ..a_cq() }, Done);
    run.bench.finish();
}

#[test]
fn a_region_is_created_queried_and_destroyed_by_its_whole_key() {
    let mut run = Run::ready("command_mr");
    assert_eq!(run.mr(CreateMr, &a_mr(), Done), 24);
    let entry = MrEntry {
        valid: true,
        tag: 0x5Au64.into(),
        pd: 0xBEEFu64.into(),
        access: 7u64.into(),
        base: 0x7000_0000_0000_0123u64.into(),
        len: 0x1_0000_0001u64.into(),
        delta: 0x23u64.wrapping_sub(0x7000_0000_0000_0123).into(),
    };
    assert_eq!(run.mr_writes, [MrWrite { valid: true, index: u64::from(LAST_MR).into(), entry }]);
    let other_tag = CmdMr { key: Key::new(LAST_MR, 0x5B).0.into(), ..a_mr() };
    run.mr(CreateMr, &other_tag, InUse);
    run.mr(DestroyMr, &other_tag, NotInUse);
    run.mr(QueryMr, &other_tag, Done);
    assert_eq!(run.results, [0; 8]);
    run.mr(QueryMr, &a_mr(), Done);
    assert_eq!(run.results, [1, 0, 0, 0, 0, 0, 0, 0]);
    run.mr(DestroyMr, &a_mr(), Done);
    assert_eq!(run.mr_writes, [MrWrite { valid: true, index: u64::from(LAST_MR).into(), entry: MrEntry::default() }]);
    run.mr(DestroyMr, &a_mr(), NotInUse);
    for op in [CreateMr, DestroyMr, QueryMr] {
        for index in [0, LAST_MR + 1, 0xFF_FC01] {
            run.mr(op, &CmdMr { key: Key::new(index, 1).0.into(), ..a_mr() }, BadIndex);
        }
    }
    let top = 0u64.wrapping_sub(0x1_0000_0001);
    for bad in [
        CmdMr { len_bytes: 0.into(), ..a_mr() },
        CmdMr { access: 0x10, ..a_mr() },
        CmdMr { base_va: top.into(), ..a_mr() },
        CmdMr { iova: top.into(), ..a_mr() },
        CmdMr { len_bytes: u64::MAX.into(), ..a_mr() },
    ] {
        run.mr(CreateMr, &bad, BadParameter);
    }
    run.mr(CreateMr, &CmdMr { base_va: (top - 1).into(), iova: (top - 1).into(), ..a_mr() }, Done);
    run.bench.finish();
}

#[test]
fn a_queue_pair_goes_to_rts_with_its_whole_context() {
    let mut run = Run::ready("command_qp");
    run.cq(CreateCq, &a_cq(), Done);
    assert_eq!(run.qp(CreateQp, &CmdQp { state: 0, mtu: 0, remote_qpn: 0.into(), ..a_qp() }, Done), 24);
    assert!(run.qp_writes[0].clear && !run.qp_writes[0].start_rx && !run.qp_writes[0].start_tx);
    for (state, start_rx, start_tx) in
        [(QpState::Init, false, false), (QpState::Rtr, true, false), (QpState::Rts, false, true), (QpState::Rts, false, false)]
    {
        run.go_to(state, Done);
        let context = QpContext {
            state: (state as u64).into(),
            flags: 5u64.into(),
            access: 2u64.into(),
            mtu: 5u64.into(),
            pd: 0x1234u64.into(),
            ttl: 64u64.into(),
            traffic_class: 8u64.into(),
            send_cqn: 9u64.into(),
            remote_qpn: 0xAB_CDEFu64.into(),
            sq_psn: 0x11_2233u64.into(),
            rq_psn: 0x44_5566u64.into(),
            source_port: 0xC123u64.into(),
            vlan_tci: 0x7001u64.into(),
            remote_mac: 0x0605_0403_0201u64.into(),
            pkey: 0xFFFFu64.into(),
            remote_ip: 0x0F0E_0D0C_0B0A_0908_0706_0504_0302_0100u128.to_bits(),
            sq_address: 0x1111_2222_3333_4440u64.into(),
            progress_address: 0x5555_6666_7777_8884u64.into(),
            sq_log_depth: 9u64.into(),
            ack_timeout: 31u64.into(),
            retry_count: 6u64.into(),
        };
        assert_eq!(run.qp_writes, [QpWrite { valid: true, qpn: u64::from(LAST_QP).into(), start_rx, start_tx, clear: false, context }]);
    }
    assert_eq!(run.qp(QueryQp, &a_qp(), Done), 32);
    assert_eq!(run.results, [3, 0xFF01, 0xFF02, 0xFF03, 0xFF04, 0xFF05, 0xFF06, 0xFF07]);
    run.bench.uut.q_tx_dead.next = true;
    run.qp(QueryQp, &a_qp(), Done);
    assert_eq!(run.results[0], QpState::Error as u32, "a dead requester is an error");
    run.go_to(QpState::Rts, BadState);
    run.bench.uut.q_tx_dead.next = false;
    run.go_to(QpState::Reset, Done);
    assert!(run.qp_writes[0].clear && run.qp_writes[0].context.state == 0u64);
    run.go_to(QpState::Init, Done);
    run.go_to(QpState::Error, Done);
    assert!(!run.qp_writes[0].clear && run.qp_writes[0].context.state == 6u64);
    run.qp(DestroyQp, &a_qp(), Done);
    assert_eq!(run.qp_writes, [QpWrite { valid: true, qpn: u64::from(LAST_QP).into(), clear: true, ..Default::default() }]);
    run.qp(QueryQp, &a_qp(), NotInUse);
    run.bench.finish();
}

#[test]
fn only_the_allowed_transitions_are_made() {
    use QpState::{Error, Init, Reset, Rtr, Rts};
    let mut run = Run::ready("command_transitions");
    run.cq(CreateCq, &a_cq(), Done);
    for (from, allowed) in [
        (Reset, vec![Reset, Init]),
        (Init, vec![Init, Rtr, Error, Reset]),
        (Rtr, vec![Rts, Error, Reset]),
        (Rts, vec![Rts, Error, Reset]),
        (Error, vec![Error, Reset]),
    ] {
        run.make(from);
        for to in [Reset, Init, Rtr, Rts, Error] {
            if !allowed.contains(&to) {
                run.go_to(to, BadState);
            }
        }
        run.qp(DestroyQp, &a_qp(), Done);
        for to in allowed {
            run.make(from);
            run.go_to(to, Done);
            run.qp(DestroyQp, &a_qp(), Done);
        }
    }
    run.bench.finish();
}

#[test]
fn a_queue_pair_with_a_bad_argument_is_refused() {
    let mut run = Run::ready("command_bad_qp");
    run.qp(CreateQp, &a_qp(), BadParameter);
    run.cq(CreateCq, &a_cq(), Done);
    for op in [CreateQp, ModifyQp, QueryQp, DestroyQp] {
        for qpn in [0, 1, LAST_QP + 1, 0x100_00FF] {
            run.qp(op, &CmdQp { qpn: qpn.into(), ..a_qp() }, BadIndex);
        }
    }
    for op in [ModifyQp, QueryQp, DestroyQp] {
        run.qp(op, &a_qp(), NotInUse);
    }
    for state in [QpState::Rtr, QpState::Rts, QpState::Error] {
        run.qp(CreateQp, &CmdQp { state: state as u8, ..a_qp() }, BadState);
    }
    let bad = [
        CmdQp { state: 4, ..a_qp() },
        CmdQp { state: 0x81, ..a_qp() },
        CmdQp { flags: 8, ..a_qp() },
        CmdQp { access: 0x10, ..a_qp() },
        CmdQp { send_cqn: 8.into(), ..a_qp() },
        CmdQp { send_cqn: 0x109.into(), ..a_qp() },
        CmdQp { sq_address: 0x20.into(), ..a_qp() },
        CmdQp { progress_address: 0x2.into(), ..a_qp() },
        CmdQp { sq_log_depth: 10, ..a_qp() },
        CmdQp { timeout: 32, ..a_qp() },
        CmdQp { retry_count: 8, ..a_qp() },
    ];
    for args in &bad {
        run.qp(CreateQp, args, BadParameter);
    }
    run.qp(CreateQp, &a_qp(), Done);
    run.qp(CreateQp, &a_qp(), InUse);
    for args in &bad {
        run.qp(ModifyQp, args, BadParameter);
    }
    for args in [
        CmdQp { mtu: 0, ..a_qp() },
        CmdQp { mtu: 6, ..a_qp() },
        CmdQp { remote_qpn: 0.into(), ..a_qp() },
        CmdQp { remote_qpn: 0x100_0000.into(), ..a_qp() },
    ] {
        run.qp(ModifyQp, &CmdQp { state: QpState::Rtr as u8, ..args }, BadParameter);
        run.qp(ModifyQp, &args, Done);
    }
    run.go_to(QpState::Rtr, Done);
    run.bench.finish();
}

#[test]
fn unknown_commands_are_refused_and_a_second_go_is_ignored_and_counted() {
    let mut run = Run::ready("command_unknown");
    for opcode in [0, 11, 129, 255] {
        run.run(opcode, &a_qp(), BadOpcode);
    }
    run.load(&a_cq());
    run.start(CreateCq as u64);
    let tag = run.tag;
    let bad = run.bad;
    run.start(DestroyCq as u64);
    run.start(DestroyCq as u64);
    let (code, _) = run.wait();
    assert_eq!((code, run.bench.uut.done_tag.val().to_u64()), (0, tag));
    assert_eq!(run.bad - bad, 2);
    run.cq(QueryCq, &a_cq(), Done);
    assert_eq!(run.results[0], 1);
    run.bench.finish();
}

#[test]
fn a_refusal_and_an_ignored_go_in_the_same_clock_count_twice() {
    let mut run = Run::ready("command_both_bad");
    for early in 0..4 {
        let bad = run.bad;
        run.start(99);
        for _ in 0..22 - early {
            run.step();
        }
        run.start(99);
        run.wait();
        for _ in 0..4 {
            run.step();
        }
        assert_eq!(run.bad - bad, 2);
    }
    run.bench.finish();
}

/// One of the three counters that are waited for, and its name.
type Side = (&'static str, fn(&mut CommandProcessor) -> (&mut Signal<In, Bits<16>>, &mut Signal<In, Bits<16>>));

#[test]
fn a_command_that_drains_waits_for_what_had_entered_and_for_no_more() {
    let sides: [Side; 3] = [
        ("transmitter", |uut| (&mut uut.tx_entered, &mut uut.tx_finished)),
        ("responder", |uut| (&mut uut.rx_entered, &mut uut.rx_finished)),
        ("CQ writer", |uut| (&mut uut.cq_entered, &mut uut.cq_finished)),
    ];
    let mut run = Run::ready("command_drain");
    run.cq(CreateCq, &CmdCq { cqn: 10.into(), ..a_cq() }, Done);
    for (name, side) in sides {
        for (op, args) in [
            (DestroyCq, Box::new(a_cq()) as Box<dyn Words>),
            (DestroyMr, Box::new(a_mr())),
            (DestroyQp, Box::new(a_qp())),
            (ModifyQp, Box::new(CmdQp { state: 6, ..a_qp() })),
            (ModifyQp, Box::new(CmdQp { state: 0, ..a_qp() })),
        ] {
            run.cq(CreateCq, &a_cq(), Done);
            run.mr(CreateMr, &a_mr(), Done);
            run.qp(CreateQp, &a_qp(), Done);
            // Across the wrap: three are under way, and two more enter while they are waited for.
            let start = 0xFFFEu64;
            side(&mut run.bench.uut).0.next = (start + 1).into();
            side(&mut run.bench.uut).1.next = start.into();
            run.load(args.as_ref());
            run.forget();
            run.start(op as u64);
            for _ in 0..30 {
                run.step();
            }
            assert_eq!(run.qp_writes.len() + run.mr_writes.len() + run.cq_writes.len(), 1, "the change is broadcast before the wait");
            side(&mut run.bench.uut).0.next = ((start + 3) & 0xFFFF).into();
            for _ in 0..40 {
                run.step();
            }
            side(&mut run.bench.uut).0.next = ((start + 5) & 0xFFFF).into();
            for done in 1..=3 {
                assert!(run.bench.uut.busy.val(), "{op:?} does not wait for the {name}");
                side(&mut run.bench.uut).1.next = ((start + done) & 0xFFFF).into();
                run.step();
                run.step();
            }
            run.step();
            assert_eq!(run.wait().0, 0);
            side(&mut run.bench.uut).0.next = 0u64.into();
            side(&mut run.bench.uut).1.next = 0u64.into();
            // What is left of the three is removed without a wait.
            let rest: [(CommandOp, &dyn Words); 3] = [(DestroyQp, &a_qp()), (DestroyMr, &a_mr()), (DestroyCq, &a_cq())];
            for (op, args) in rest {
                run.load(args);
                run.start(op as u64);
                run.wait();
            }
        }
    }
    run.bench.finish();
}

#[test]
fn a_command_with_nothing_under_way_drains_in_58_clocks() {
    let mut run = Run::ready("command_drain_rate");
    run.cq(CreateCq, &a_cq(), Done);
    for counter in [&mut run.bench.uut.tx_entered, &mut run.bench.uut.tx_finished] {
        counter.next = 500u64.into();
    }
    assert_eq!(run.cq(DestroyCq, &a_cq(), Done), 58);
    run.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_command_and_tables() {
    let mut run = Run::ready("command_reset");
    run.cq(CreateCq, &a_cq(), Done);
    run.load(&a_cq());
    run.start(DestroyCq as u64);
    for _ in 0..25 {
        run.step();
    }
    run.bench.uut.reset.next = true;
    run.events.restart();
    run.step();
    run.bench.uut.reset.next = false;
    run.bench.settle();
    assert!(!run.bench.uut.busy.val() && !run.bench.uut.ready.val() && run.bench.uut.done_tag.val() == 0u64);
    for _ in 0..CLEAR_CLOCKS + 2 {
        run.step();
    }
    assert!(run.bench.uut.ready.val());
    run.cq(QueryCq, &a_cq(), Done);
    assert_eq!(run.results[0], 0);
    run.bench.finish();
}
