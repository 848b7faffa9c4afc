//! Both ends of `verbena send`: what the driver is asked for, and the posting and reaping.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{ensure, Context, Result};
use verbena_host::{Adapter, AdapterConfig, Completion, Cq, Device, DmaBuffer, Mr, Pd, Qp, QpOptions, QpPeer, SendQueue, Sge, WriteFlags};
use verbena_sim::World;

use super::send::Arguments;

/// One end of the transfer.
pub struct End {
    pub adapter: Arc<Adapter>,
    pub cq: Arc<Cq>,
    pub mr: Arc<Mr>,
    pub qps: Vec<Arc<Qp>>,
}

/// Opens card `number` and creates what the transfer needs.
pub fn open(world: &Arc<World>, number: usize, arguments: &Arguments, memory_bytes: usize, rights: u8) -> Result<End> {
    let last = number as u8 + 1;
    let (ipv4, ipv6) = if arguments.ipv6 {
        (None, Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())))
    } else {
        (Some(Ipv4Addr::new(192, 0, 2, last)), None)
    };
    let device = world.device(number);
    let memory: DmaBuffer = Arc::clone(&device).alloc(memory_bytes.max(1), 64)?;
    let adapter = Adapter::open(device, AdapterConfig::new([2, 0, 0, 0, 0, last], ipv4, ipv6))?;
    let pd = Pd::create(&adapter)?;
    let cq = Cq::create_blocking(&adapter, arguments.qps.saturating_mul(arguments.depth), None)?;
    // An address of its own choice, so that the frames are the same in each run.
    let mr = Mr::register_at_blocking(&pd, memory, 0x7000_0000_0000 + ((number as u64) << 40), rights)?;
    let mut qps = Vec::new();
    for index in 0..arguments.qps {
        let first_psn =
            Some((arguments.seed as u32).wrapping_mul(0x9E_3779).wrapping_add(index * 0x1111 + number as u32 * 0x5555) & 0xFF_FFFF);
        let options = QpOptions { first_psn, ..QpOptions::sender(arguments.depth) };
        qps.push(Qp::create_blocking(&pd, &cq, &cq, options)?);
    }
    Ok(End { adapter, cq, mr, qps })
}

/// Connects the QPs of both ends, one to one.
pub fn connect(from: &End, to: &End, arguments: &Arguments) -> Result<()> {
    for (mine, other) in from.qps.iter().zip(&to.qps) {
        let mut peer = QpPeer::new(other.address(), arguments.mtu);
        peer.vlan_tci = arguments.vlan;
        mine.connect_blocking(&peer)?;
    }
    Ok(())
}

/// Returns all counters of both cards that are not 0.
pub fn describe(a: &End, b: &End) -> String {
    let list = |end: &End| {
        let counters = end.adapter.read_counters();
        let counts: Vec<String> = counters.iter().filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name} {count}")).collect();
        counts.join(", ")
    };
    format!("A counts {}; B counts {}", list(a), list(b))
}

/// Closes everything, and sees to it that nothing is left on the card.
pub fn close(end: End) -> Result<()> {
    let End { adapter, cq, mr, qps } = end;
    for qp in qps {
        qp.close_blocking()?;
    }
    mr.close_blocking()?;
    cq.close_blocking()?;
    Ok(adapter.close_blocking()?)
}

/// The posting and reaping of all requests.
pub struct Sender<'a> {
    a: &'a End,
    queues: Vec<SendQueue>,
    from: (u64, u32),
    to: (u64, u32),
    bytes: u64,
    message: u64,
    pub requests: u64,
    posted: u64,
    pub done: u64,
}

impl<'a> Sender<'a> {
    pub fn new(arguments: &Arguments, a: &'a End, b: &End, bytes: u64) -> Result<Self> {
        let queues = a.qps.iter().map(|qp| qp.take_send_queue().context("the send queue is taken")).collect::<Result<_>>()?;
        let message = u64::from(arguments.message);
        Ok(Self {
            a,
            queues,
            from: (a.mr.base_va(), a.mr.lkey()),
            to: (b.mr.base_va(), b.mr.rkey()),
            bytes,
            message,
            // An empty file is a write of no bytes.
            requests: bytes.div_ceil(message).max(1),
            posted: 0,
            done: 0,
        })
    }

    /// Posts what the queues have room for, and rings each queue's doorbell once.
    pub fn post(&mut self) -> Result<()> {
        while self.posted < self.requests {
            let queue = (self.posted % self.queues.len() as u64) as usize;
            if self.queues[queue].free_slots() == 0 {
                break;
            }
            let offset = self.posted * self.message;
            let len = self.message.min(self.bytes - offset);
            let sge = Sge { va: self.from.0 + offset, len_bytes: len as u32, lkey: self.from.1 };
            self.queues[queue].write(self.posted, &[sge], self.to.0 + offset, self.to.1, WriteFlags::DEFER)?;
            self.posted += 1;
        }
        self.queues.iter_mut().for_each(SendQueue::ring_doorbell);
        Ok(())
    }

    /// Takes completions. Returns how many there were.
    pub fn reap(&mut self) -> Result<u64> {
        let mut completions = [Completion::default(); 64];
        let mut news = 0;
        loop {
            let count = self.a.cq.poll(&mut completions);
            for completion in &completions[..count] {
                ensure!(
                    completion.status.is_success(),
                    "request {} of QP {} failed: {:?}, syndrome {:#04x}",
                    completion.context,
                    completion.qpn,
                    completion.status,
                    completion.syndrome
                );
            }
            news += count as u64;
            if count < completions.len() {
                break;
            }
        }
        self.done += news;
        if news == 0 {
            self.a.adapter.process_events();
        }
        ensure!(!self.a.cq.is_dead(), "the completion queue overran");
        Ok(news)
    }
}
