//! The arguments of a command: takes the words of the window and makes them records.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `shift`, `word_in` | in | takes the next word; after [`WORDS`] clocks the first one is in place |
//! | `is_blank` | in | the records are those of something that does not exist |
//! | `number`, `send_cqn`, `to` | out | QPN, CQN or key; CQ of a QP; wanted state |
//! | `qp_context`, `mr_entry`, `cq_entry` | out | the records |
//! | `is_bad_…` | out | an argument of such an object is out of range |
//!
//! Latency: numbers and records but `delta` are there with the last word, `is_bad_…` and `delta` one clock
//! later. Reserved bytes and the upper bits of PSNs do not count; unknown flags and rights are out of range.
//! Throughput: one word every clock, with any pause between words. There is no state to reset: the words of
//! the next command push the old ones out.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_CQS};

use crate::bus::{CqEntry, Cqn, MrEntry, QpContext};

/// Words of the longest argument structure.
pub(super) const WORDS: usize = 19;

/// Arguments of a command.
#[derive(LogicBlock)]
pub struct Arguments {
    pub clock: Signal<In, Clock>,
    pub shift: Signal<In, Bit>,
    pub word_in: Signal<In, Bits<32>>,
    pub is_blank: Signal<In, Bit>,
    pub number: Signal<Out, Bits<32>>,
    pub send_cqn: Signal<Out, Cqn>,
    pub to: Signal<Out, Bits<8>>,
    pub qp_context: Signal<Out, QpContext>,
    pub mr_entry: Signal<Out, MrEntry>,
    pub cq_entry: Signal<Out, CqEntry>,
    /// An argument of a QP, whatever its state.
    pub is_bad_qp: Signal<Out, Bit>,
    /// An argument that a QP needs from RTR on.
    pub is_bad_peer: Signal<Out, Bit>,
    pub is_bad_cq: Signal<Out, Bit>,
    pub is_bad_mr: Signal<Out, Bit>,

    word: [DFF<Bits<32>>; WORDS],
    w0: Signal<Local, Bits<32>>,
    w1: Signal<Local, Bits<32>>,
    w2: Signal<Local, Bits<32>>,
    w3: Signal<Local, Bits<32>>,
    w4: Signal<Local, Bits<32>>,
    w5: Signal<Local, Bits<32>>,
    w6: Signal<Local, Bits<32>>,
    w7: Signal<Local, Bits<32>>,
    w8: Signal<Local, Bits<32>>,
    w9: Signal<Local, Bits<32>>,
    w14: Signal<Local, Bits<32>>,
    w15: Signal<Local, Bits<32>>,
    w16: Signal<Local, Bits<32>>,
    w17: Signal<Local, Bits<32>>,
    w18: Signal<Local, Bits<32>>,
    base: Signal<Local, Bits<64>>,
    length: Signal<Local, Bits<64>>,
    iova: Signal<Local, Bits<64>>,
    end_of_base: DFF<Bits<64>>,
    end_of_iova: DFF<Bits<64>>,
    delta: DFF<Bits<64>>,
    mac: Signal<Local, Bits<48>>,
    ip: Signal<Local, Bits<128>>,
    sq_address: Signal<Local, Bits<64>>,
    progress_address: Signal<Local, Bits<64>>,
    bad_qp: DFF<Bit>,
    bad_peer: DFF<Bit>,
    bad_cq: DFF<Bit>,
    bad_mr: DFF<Bit>,

    last_mtu: Constant<Bits<8>>,
    log_sq_depth: Constant<Bits<8>>,
    log_cq_depth: Constant<Bits<8>>,
    cq_count: Constant<Bits<16>>,
    no_context: Constant<QpContext>,
    no_mr_entry: Constant<MrEntry>,
    no_cq_entry: Constant<CqEntry>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            shift: Default::default(),
            word_in: Default::default(),
            is_blank: Default::default(),
            number: Default::default(),
            send_cqn: Default::default(),
            to: Default::default(),
            qp_context: Default::default(),
            mr_entry: Default::default(),
            cq_entry: Default::default(),
            is_bad_qp: Default::default(),
            is_bad_peer: Default::default(),
            is_bad_cq: Default::default(),
            is_bad_mr: Default::default(),
            word: Default::default(),
            w0: Default::default(),
            w1: Default::default(),
            w2: Default::default(),
            w3: Default::default(),
            w4: Default::default(),
            w5: Default::default(),
            w6: Default::default(),
            w7: Default::default(),
            w8: Default::default(),
            w9: Default::default(),
            w14: Default::default(),
            w15: Default::default(),
            w16: Default::default(),
            w17: Default::default(),
            w18: Default::default(),
            base: Default::default(),
            length: Default::default(),
            iova: Default::default(),
            end_of_base: Default::default(),
            end_of_iova: Default::default(),
            delta: Default::default(),
            mac: Default::default(),
            ip: Default::default(),
            sq_address: Default::default(),
            progress_address: Default::default(),
            bad_qp: Default::default(),
            bad_peer: Default::default(),
            bad_cq: Default::default(),
            bad_mr: Default::default(),
            last_mtu: Constant::new(5u8.to_bits()),
            log_sq_depth: Constant::new(limits::LOG_SQ_DEPTH.to_bits()),
            cq_count: Constant::new(limits::CQS.to_bits()),
            log_cq_depth: Constant::new(limits::LOG_CQ_DEPTH.to_bits()),
            no_context: Constant::new(QpContext::default()),
            no_mr_entry: Constant::new(MrEntry::default()),
            no_cq_entry: Constant::new(CqEntry::default()),
        }
    }
}

impl Logic for Arguments {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, end_of_base, end_of_iova, delta, bad_qp, bad_peer, bad_cq, bad_mr);
        for i in 0_usize..19 {
            self.word[i].clock.next = self.clock.val();
            self.word[i].d.next = self.word[i].q.val();
        }
        // The words move down one place a clock, so that the first is in place 0 at last.
        if self.shift.val() {
            for i in 0_usize..18 {
                self.word[i].d.next = self.word[i + 1].q.val();
            }
            self.word[18].d.next = self.word_in.val();
        }

        self.w0.next = self.word[0].q.val();
        self.w1.next = self.word[1].q.val();
        self.w2.next = self.word[2].q.val();
        self.w3.next = self.word[3].q.val();
        self.w4.next = self.word[4].q.val();
        self.w5.next = self.word[5].q.val();
        self.w6.next = self.word[6].q.val();
        self.w7.next = self.word[7].q.val();
        self.w8.next = self.word[8].q.val();
        self.w9.next = self.word[9].q.val();
        self.w14.next = self.word[14].q.val();
        self.w15.next = self.word[15].q.val();
        self.w16.next = self.word[16].q.val();
        self.w17.next = self.word[17].q.val();
        self.w18.next = self.word[18].q.val();
        self.base.next = (bit_cast::<64, 32>(self.w3.val()) << 32) | bit_cast::<64, 32>(self.w2.val());
        self.length.next = (bit_cast::<64, 32>(self.w5.val()) << 32) | bit_cast::<64, 32>(self.w4.val());
        self.iova.next = (bit_cast::<64, 32>(self.w7.val()) << 32) | bit_cast::<64, 32>(self.w6.val());
        self.sq_address.next = (bit_cast::<64, 32>(self.w15.val()) << 32) | bit_cast::<64, 32>(self.w14.val());
        self.progress_address.next = (bit_cast::<64, 32>(self.w17.val()) << 32) | bit_cast::<64, 32>(self.w16.val());
        self.mac.next = (bit_cast::<48, 32>(self.w9.val()) << 32) | bit_cast::<48, 32>(self.w8.val());
        self.ip.next = (bit_cast::<128, 32>(self.word[13].q.val()) << 96)
            | (bit_cast::<128, 32>(self.word[12].q.val()) << 64)
            | (bit_cast::<128, 32>(self.word[11].q.val()) << 32)
            | bit_cast::<128, 32>(self.word[10].q.val());
        self.end_of_base.d.next = self.base.val() + self.length.val();
        self.end_of_iova.d.next = self.iova.val() + self.length.val();
        self.delta.d.next = self.iova.val() - self.base.val();

        self.number.next = self.w0.val();
        self.send_cqn.next = self.w3.val().get_bits::<LOG_CQS>(0);
        self.to.next = self.w1.val().get_bits::<8>(0);

        self.bad_qp.d.next = (self.w1.val().get_bits::<5>(11) != 0)
            | (self.w1.val().get_bits::<4>(20) != 0)
            | (self.w3.val().get_bits::<16>(0) >= self.cq_count.val())
            | (self.w14.val().get_bits::<6>(0) != 0)
            | (self.w16.val().get_bits::<2>(0) != 0)
            | (self.w18.val().get_bits::<8>(0) > self.log_sq_depth.val())
            | (self.w18.val().get_bits::<3>(13) != 0)
            | (self.w18.val().get_bits::<5>(19) != 0);
        self.bad_peer.d.next = (self.w1.val().get_bits::<8>(24) == 0)
            | (self.w1.val().get_bits::<8>(24) > self.last_mtu.val())
            | (self.w4.val() == 0)
            | (self.w4.val().get_bits::<8>(24) != 0);
        self.bad_cq.d.next = (self.w1.val().get_bits::<8>(0) > self.log_cq_depth.val()) | (self.w2.val().get_bits::<6>(0) != 0);
        self.bad_mr.d.next = (self.length.val() == 0) | (self.w1.val().get_bits::<4>(20) != 0);

        self.is_bad_qp.next = self.bad_qp.q.val();
        self.is_bad_peer.next = self.bad_peer.q.val();
        self.is_bad_cq.next = self.bad_cq.q.val();
        self.is_bad_mr.next =
            self.bad_mr.q.val() | (self.end_of_base.q.val() < self.base.val()) | (self.end_of_iova.q.val() < self.iova.val());

        self.qp_context.next = self.no_context.val();
        self.mr_entry.next = self.no_mr_entry.val();
        self.cq_entry.next = self.no_cq_entry.val();
        if !self.is_blank.val() {
            self.qp_context.next.state = self.w1.val().get_bits::<3>(0);
            self.qp_context.next.flags = self.w1.val().get_bits::<3>(8);
            self.qp_context.next.access = self.w1.val().get_bits::<4>(16);
            self.qp_context.next.mtu = self.w1.val().get_bits::<3>(24);
            self.qp_context.next.pd = self.w2.val().get_bits::<16>(0);
            self.qp_context.next.ttl = self.w2.val().get_bits::<8>(16);
            self.qp_context.next.traffic_class = self.w2.val().get_bits::<8>(24);
            self.qp_context.next.send_cqn = self.w3.val().get_bits::<16>(0);
            self.qp_context.next.remote_qpn = self.w4.val().get_bits::<24>(0);
            self.qp_context.next.sq_psn = self.w5.val().get_bits::<24>(0);
            self.qp_context.next.rq_psn = self.w6.val().get_bits::<24>(0);
            self.qp_context.next.source_port = self.w7.val().get_bits::<16>(0);
            self.qp_context.next.vlan_tci = self.w7.val().get_bits::<16>(16);
            self.qp_context.next.remote_mac = self.mac.val();
            self.qp_context.next.pkey = self.w9.val().get_bits::<16>(16);
            self.qp_context.next.remote_ip = self.ip.val();
            self.qp_context.next.sq_address = self.sq_address.val();
            self.qp_context.next.progress_address = self.progress_address.val();
            self.qp_context.next.sq_log_depth = self.w18.val().get_bits::<4>(0);
            self.qp_context.next.ack_timeout = self.w18.val().get_bits::<5>(8);
            self.qp_context.next.retry_count = self.w18.val().get_bits::<3>(16);
            self.mr_entry.next.valid = true;
            self.mr_entry.next.tag = self.w0.val().get_bits::<8>(0);
            self.mr_entry.next.pd = self.w1.val().get_bits::<16>(0);
            self.mr_entry.next.access = self.w1.val().get_bits::<4>(16);
            self.mr_entry.next.base = self.base.val();
            self.mr_entry.next.len = self.length.val();
            self.mr_entry.next.delta = self.delta.q.val();
            self.cq_entry.next.valid = true;
            self.cq_entry.next.address = self.base.val();
            self.cq_entry.next.log_depth = self.w1.val().get_bits::<5>(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    #[test]
    fn random_words_with_pauses_come_out_as_records() {
        let mut bench = Bench::new("arguments", Arguments::default(), |uut| &mut uut.clock);
        let mut random = Stalls::new(71);
        let mut pauses = Stalls::new(72);
        for _ in 0..40 {
            let words: Vec<u64> = (0..WORDS).map(|_| random.random() & 0xFFFF_FFFF).collect();
            let mut taken = 0;
            while taken < WORDS {
                let shift = pauses.go();
                bench.uut.shift.next = shift;
                bench.uut.word_in.next = if shift { words[taken] } else { 0xDEAD }.into();
                taken += usize::from(shift);
                bench.edge();
            }
            bench.uut.shift.next = false;
            bench.edge();
            let pair = |low: usize| words[low] | words[low + 1] << 32;
            let (qp, mr, cq) = (bench.uut.qp_context.val(), bench.uut.mr_entry.val(), bench.uut.cq_entry.val());
            assert_eq!(bench.uut.number.val(), words[0]);
            assert_eq!((qp.pd.to_u64(), qp.pkey.to_u64()), (words[2] & 0xFFFF, words[9] >> 16));
            assert_eq!(qp.remote_mac.to_u64(), words[8] | (words[9] & 0xFFFF) << 32);
            assert_eq!(qp.remote_ip.to_u128(), u128::from(pair(10)) | u128::from(pair(12)) << 64);
            assert_eq!((qp.sq_address.to_u64(), qp.progress_address.to_u64()), (pair(14), pair(16)));
            assert_eq!((mr.base.to_u64(), mr.len.to_u64(), mr.delta.to_u64()), (pair(2), pair(4), pair(6).wrapping_sub(pair(2))));
            assert_eq!((cq.address.to_u64(), cq.log_depth.to_u64()), (pair(2), words[1] & 31));
            let wraps = pair(2).checked_add(pair(4)).is_none() || pair(6).checked_add(pair(4)).is_none();
            assert_eq!(bench.uut.is_bad_mr.val(), wraps || words[1] >> 20 & 15 != 0);
            bench.uut.is_blank.next = true;
            bench.edge();
            assert_eq!(bench.uut.qp_context.val(), QpContext::default());
            assert_eq!((bench.uut.mr_entry.val(), bench.uut.cq_entry.val()), (MrEntry::default(), CqEntry::default()));
            bench.uut.is_blank.next = false;
        }
        bench.finish();
    }
}
