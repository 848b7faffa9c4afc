//! Tests of the driver against two cards made of software.
//!
//! | module | looks at |
//! |---|---|
//! | `traffic` | the exact order of register accesses, with the mock |
//! | `errors` | every refusal names value and limit |
//! | `lifetimes` | creating and closing, in any order, once each |
//! | `posting` | slots, DEFER, silent requests, contexts |
//! | `events` | arming, faults, overruns, nonsense from the card |
//! | `connections` | connecting, refusing and ending, between two cards |
//!
//! `fake_card` is a card that executes commands and requests in memory.

mod connections;
mod errors;
mod events;
mod fake_card;
mod lifetimes;
mod posting;
mod traffic;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fake_card::FakeCard;
use verbena_host::{Adapter, AdapterConfig, Completion, Cq, Pd, Qp, QpAddress, QpOptions, QpPeer, SendQueue};

/// Station address of the adapter under test.
const MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

fn config() -> AdapterConfig {
    AdapterConfig { max_waits: 200, ..AdapterConfig::new(MAC, Some(Ipv4Addr::new(10, 0, 0, 1)), None) }
}

fn peer() -> QpPeer {
    let address = QpAddress { qpn: 9, psn: 0x12_3456, ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), mac: [2, 0, 0, 0, 0, 2] };
    QpPeer::new(address, 1024)
}

/// A connected QP on a fake card.
struct Bench {
    card: Arc<FakeCard>,
    adapter: Arc<Adapter>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    sq: SendQueue,
}

impl Bench {
    fn new(depth: u32) -> Self {
        Self::with_options(QpOptions { context: 77, first_psn: Some(5), ..QpOptions::sender(depth) }, depth.max(1))
    }

    fn with_options(options: QpOptions, cq_depth: u32) -> Self {
        let card = FakeCard::new();
        let adapter = Adapter::open(card.clone(), config()).unwrap();
        let pd = Pd::create(&adapter).unwrap();
        let cq = Cq::create_blocking(&adapter, cq_depth, None).unwrap();
        let qp = Qp::create_blocking(&pd, &cq, &cq, options).unwrap();
        qp.connect_blocking(&peer()).unwrap();
        let sq = qp.take_send_queue().unwrap();
        Self { card, adapter, cq, qp, sq }
    }

    /// Takes everything that is in the CQ.
    fn drain(&self) -> Vec<Completion> {
        drain(&self.cq)
    }
}

fn drain(cq: &Cq) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut batch = [Completion::default(); 3];
    loop {
        let count = cq.poll(&mut batch);
        all.extend_from_slice(&batch[..count]);
        if count < batch.len() {
            return all;
        }
    }
}
