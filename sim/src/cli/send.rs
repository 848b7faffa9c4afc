//! `verbena send`: a file goes from one host's memory to another's.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, ensure, Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use verbena_host::access;
use verbena_sim::ffi::CLOCK_NS;
use verbena_sim::{End, EndOptions, Threads, World, WorldConfig};

use super::report::{gbps, limit_gbps, per_second, Report};
use super::sender::Sender;
use super::values::{parse_mtu, parse_size, without_panic, Pcie};

/// What is taken of a file that the program chose itself.
const CHOSEN_BYTES: u64 = 4 << 20;
/// Clocks without a completion after which a transfer is given up: 10 ms, or the longest message three times.
const PATIENCE: u64 = 2_500_000;
/// What B's memory holds before; a byte that was never written shows.
const BLANK: u8 = 0xC5;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// File to send; without one, the first 4 MiB of this program
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = parse_mtu)]
    pub mtu: u32,
    /// Bytes of a request, e.g. 4096, 64KiB, 1MiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_size)]
    pub message: u32,
    /// Requests of a QP that are under way at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: u32,
    /// Queue pairs; requests are dealt to them in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub qps: u32,
    /// Tag the frames for this VLAN
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..4095))]
    pub vlan: Option<u16>,
    /// Use IPv6 instead of IPv4
    #[arg(long)]
    pub ipv6: bool,
    /// Seed of everything that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Read latency of host memory, nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 800)]
    host_latency: u64,
    /// PCIe between card and host
    #[arg(long, value_enum, default_value = "gen3x16")]
    pcie: Pcie,
    /// Let all ready and valid signals pause, in so many of a hundred clocks
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=90))]
    stalls: u8,
    /// Simulate both cards in one thread
    #[arg(long)]
    one_thread: bool,
    /// Write a capture of both directions
    #[arg(long, value_name = "OUT.pcap")]
    pcap: Option<PathBuf>,
    /// Dump all signals: card A to this file, card B to one with -b behind its name
    #[arg(long, value_name = "OUT.fst")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (file, chosen, data) = read_file(arguments.file.as_deref())?;
    let (pcie_name, mut pcie) = arguments.pcie.config();
    pcie.read_latency = arguments.host_latency.div_ceil(CLOCK_NS).max(1);
    let config = WorldConfig {
        seed: arguments.seed,
        pcie,
        threads: if arguments.one_thread { Threads::One } else { Threads::Auto },
        pcap: arguments.pcap.clone(),
        trace: arguments.trace.clone(),
        ..WorldConfig::default()
    }
    .with_stalls(arguments.stalls);
    let world = World::new(&config).context("cannot create the capture or the signal dump")?;

    let outcome = without_panic(&world, || transfer(arguments, &world, &data));
    // The capture is worth most when something went wrong.
    world.finish_capture().context("cannot write the capture")?;
    let outcome = outcome?;

    let header_bytes = 14 + if arguments.vlan.is_some() { 4 } else { 0 } + if arguments.ipv6 { 40 } else { 20 } + 8 + 12;
    let limit_gbps = limit_gbps(data.len() as u64, arguments.message.into(), arguments.mtu.into(), header_bytes);
    let payload_gbps = gbps(data.len() as u64, outcome.clocks);
    let report = Report {
        file,
        chosen,
        bytes: data.len() as u64,
        equal: outcome.received == data,
        sha256_sent: sha256(&data),
        sha256_received: sha256(&outcome.received),
        mtu: arguments.mtu,
        message_bytes: arguments.message.into(),
        qps: arguments.qps,
        depth: arguments.depth,
        requests: outcome.requests,
        packets: world.counts(0).tx.frames,
        acknowledgements: world.counts(1).tx.frames,
        transfer_clocks: outcome.clocks,
        payload_gbps,
        limit_gbps,
        share_of_limit: if limit_gbps > 0.0 { payload_gbps / limit_gbps } else { 0.0 },
        first_write_clocks: outcome.first_write,
        first_write_ns: outcome.first_write * CLOCK_NS,
        clocks: world.clock(),
        clocks_per_second: per_second(world.clock(), world.ran()),
        host_latency_ns: arguments.host_latency,
        pcie: pcie_name,
        seed: arguments.seed,
        pcap: arguments.pcap.clone(),
        trace: config.trace_files(),
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    ensure!(report.equal, "B's memory differs from the file");
    Ok(())
}

/// Returns the file to send, whether it is our own choice, and what is in it.
fn read_file(file: Option<&Path>) -> Result<(PathBuf, bool, Vec<u8>)> {
    let chosen = file.is_none();
    let file = match file {
        Some(file) => file.to_owned(),
        None => std::env::current_exe().context("no FILE was given, and this program does not find itself")?,
    };
    let open = || fs::File::open(&file).with_context(|| format!("cannot open {}", file.display()));
    let mut data = Vec::new();
    open()?
        .take(if chosen { CHOSEN_BYTES } else { u64::MAX })
        .read_to_end(&mut data)
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok((file, chosen, data))
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Outcome {
    requests: u64,
    /// From the first doorbell to the last completion.
    clocks: u64,
    first_write: u64,
    received: Vec<u8>,
}

fn transfer(arguments: &Arguments, world: &Arc<World>, data: &[u8]) -> Result<Outcome> {
    let Arguments { qps, depth, mtu, vlan, ipv6, seed, .. } = *arguments;
    let options = EndOptions { qps, depth, mtu, inline_bytes: 0, vlan, ipv6, seed };
    let a = End::open(world, 0, &options, data.len(), 0).context("card A")?;
    let b = End::open(world, 1, &options, data.len(), access::LOCAL_WRITE | access::REMOTE_WRITE).context("card B")?;
    a.connect(&b, &options).context("connecting A to B")?;
    b.connect(&a, &options).context("connecting B to A")?;
    a.mr.memory().copy_in(0, data)?;
    b.mr.memory().fill(0, b.mr.memory().len(), BLANK)?;

    let mut sender = Sender::new(arguments, &a, &b, data.len() as u64)?;
    let bar = progress(arguments, data.len() as u64)?;
    let start = world.clock();
    sender.post()?;
    // Clock by clock, so that the latency of the first write is exact.
    let mut step = 1;
    let mut first_write = 0;
    let mut last_news = start;
    while sender.done < sender.requests {
        world.run(step)?;
        let news = sender.reap()?;
        let now = world.clock();
        if news != 0 {
            if step == 1 {
                first_write = now - start;
                // A driver's loop takes some 100 ns; long messages need none that fast.
                step = if arguments.message >= 4096 { 200 } else { 25 };
            }
            last_news = now;
            bar.set_position(sender.done * u64::from(arguments.message));
            sender.post()?;
        } else if now - last_news > PATIENCE + 3 * u64::from(arguments.message) / 50 {
            bail!(
                "no completion for {} clocks: {} of {} requests are done; A counts {}; B counts {}",
                now - last_news,
                sender.done,
                sender.requests,
                a.describe(),
                b.describe()
            );
        } else if step == 1 && now - start > 100_000 {
            step = 200;
        }
    }
    let clocks = world.clock() - start;
    bar.finish_and_clear();

    let mut received = b.mr.memory().to_vec();
    received.truncate(data.len());
    let requests = sender.requests;
    drop(sender);
    a.close().context("closing card A")?;
    b.close().context("closing card B")?;
    Ok(Outcome { requests, clocks, first_write, received })
}

fn progress(arguments: &Arguments, bytes: u64) -> Result<ProgressBar> {
    if arguments.json || !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left")?;
    Ok(ProgressBar::new(bytes).with_style(style))
}
