//! Hello, write: two simulated cards, one RDMA WRITE from A's memory into B's.
//!
//! ```sh
//! cargo run --release -p verbena-sim --example hello_write
//! ```

use std::error::Error;
use std::net::Ipv4Addr;

use verbena_host::{access, Adapter, AdapterConfig, Completion, Cq, Device, Mr, Pd, Qp, QpOptions, QpPeer, Sge, WriteFlags};
use verbena_sim::{World, WorldConfig};

const HELLO: &[u8] = b"hello, write";

fn main() -> Result<(), Box<dyn Error>> {
    // Two cards and a link of 100 Gb/s. A real card is a `PciCard` in place of `world.device(…)`.
    let world = World::new(&WorldConfig::default())?;
    let mut ends = Vec::new();
    for number in 0..2u8 {
        let device = world.device(number.into());
        let config = AdapterConfig::new([2, 0, 0, 0, 0, number + 1], Some(Ipv4Addr::new(192, 0, 2, number + 1)), None);
        let adapter = Adapter::open(device.clone(), config)?;
        let pd = Pd::create(&adapter)?;
        let cq = Cq::create_blocking(&adapter, 16, None)?;
        let qp = Qp::create_blocking(&pd, &cq, &cq, QpOptions::sender(16))?;
        // Memory that the card reaches, and a key by which this end and the peer may name it.
        let mr = Mr::register_blocking(&pd, device.alloc(4096, 4096)?, access::LOCAL_WRITE | access::REMOTE_WRITE)?;
        ends.push((adapter, cq, qp, mr));
    }
    let [(adapter, cq, qp, source), (_, _, peer, sink)] = &ends[..] else { unreachable!("two ends were pushed") };

    // Each end tells the other where its QP is. Here that is a function call; across a network it takes a message.
    qp.connect_blocking(&QpPeer::new(peer.address(), 4096))?;
    peer.connect_blocking(&QpPeer::new(qp.address(), 4096))?;

    source.memory().copy_in(0, HELLO)?;
    let sge = Sge { va: source.base_va(), len_bytes: HELLO.len() as u32, lkey: source.lkey() };
    let mut queue = qp.take_send_queue().ok_or("somebody else has the send queue")?;
    queue.write(42, &[sge], sink.base_va() + 100, sink.rkey(), WriteFlags::NONE)?;

    // The completion says that B's card has the bytes and B's memory as well.
    let mut completions = [Completion::default(); 1];
    adapter.wait_for("the completion", || (cq.poll(&mut completions) == 1).then_some(()))?;
    let [completion] = completions;
    let mut arrived = [0; HELLO.len()];
    sink.memory().copy_out(100, &mut arrived)?;
    println!("request {} ended with {:?}; B's memory says: {}", completion.context, completion.status, String::from_utf8_lossy(&arrived));
    println!("{} clocks of 4 ns since the reset", world.clock());
    // Objects may be dropped in any order. A program that goes on waits with `Adapter::close_blocking` until they have left the card.
    Ok(())
}
