//! The posting and reaping of `verbena send`.

use anyhow::{ensure, Context, Result};
use verbena_host::{Completion, SendQueue, Sge, WriteFlags};
use verbena_sim::End;

use super::send::Arguments;

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
