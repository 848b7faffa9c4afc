//! Pictures of what `verbena bench` found.
//!
//! Axes are drawn here and not by `plotters`, whose ticks can't stand where something was measured.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use verbena_abi::limits::MAX_INLINE;
use verbena_sim::bench::{limits, BenchOptions, Latency, Part, Stage, Traffic};
use verbena_sim::ffi::CLOCK_NS;

use super::bench_report::{direction, queue_pairs, signals, Report};
use super::report::thousands;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Dots of a pixel, in which the backend draws: a curve of whole pixels would have steps.
const DOTS: i32 = 4;
/// Width of all pictures.
const WIDTH: i32 = 900;
/// Space at the edges.
const MARGIN: i32 = 20;
/// Width of the axis on the left with its labels and name.
const AXIS: i32 = 62;
/// Heights of texts.
const TITLE: i32 = 20;
const TEXT: i32 = 14;
const SMALL: i32 = 13;
const TINY: i32 = 11;

/// Colours of lines: those of Okabe and Ito, which differ for colour-blind readers and in brightness.
const LINES: [RGBColor; 5] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167), RGBColor(86, 180, 233)];
/// Where time is spent, in their order, with colours.
const PARTS: [(&str, Part, [u8; 3]); 3] =
    [("card", Part::Card, [0, 114, 178]), ("host", Part::Host, [230, 140, 0]), ("wire", Part::Wire, [0, 158, 115])];
const GREY: RGBColor = RGBColor(150, 150, 150);
const GRID: RGBColor = RGBColor(225, 225, 225);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(90, 90, 90);

/// A line over message size.
struct Curve {
    name: String,
    style: ShapeStyle,
    /// Which form its points have; a limit has none.
    marks: Option<usize>,
    /// Logarithm of the size, and the value.
    points: Vec<(f64, f64)>,
}

/// A vertical axis.
struct Axis {
    name: &'static str,
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

/// Draws into `directory` whatever the report has figures for, and returns the paths: goodput and rate need two sizes of messages.
pub fn write(directory: &Path, report: &Report, options: &BenchOptions) -> Result<Vec<PathBuf>> {
    let pictures =
        [("goodput.svg", goodput(report, options)), ("rate.svg", rate(report, options)), ("latency.svg", latency(report, options))];
    let mut paths = Vec::new();
    for (name, picture) in pictures {
        let path = directory.join(name);
        if let Some(picture) = picture.with_context(|| path.display().to_string())? {
            fs::write(&path, picture).with_context(|| path.display().to_string())?;
            paths.push(path);
        }
    }
    Ok(paths)
}

fn goodput(report: &Report, options: &BenchOptions) -> Result<Option<String>> {
    let Some(curves) = curves(report, options, |gbps, _| gbps) else { return Ok(None) };
    let most = report.points.iter().map(|point| point.gbps).fold(limits::WIRE_GBPS, f64::max);
    let ticks = (0..=100).step_by(20).map(|tick| (f64::from(tick), tick.to_string())).collect();
    let axis = Axis { name: "goodput, Gb/s", range: 0.0..1.05 * most, ticks };
    over_size(report, options, "RDMA WRITE: goodput over message size", &curves, &axis).map(Some)
}

fn rate(report: &Report, options: &BenchOptions) -> Result<Option<String>> {
    let Some(curves) = curves(report, options, |gbps, bytes| (gbps * 1000.0 / 8.0 / f64::from(bytes)).log10()) else { return Ok(None) };
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
    let range = values().fold(f64::INFINITY, f64::min) - 0.1..values().fold(f64::NEG_INFINITY, f64::max) + 0.1;
    // Decades, and values in between if there are few.
    let digits: &[f64] = if range.end - range.start > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = range.start.floor() as i32..=range.end.ceil() as i32;
    let ticks = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
    let ticks = ticks.map(|tick| (tick.log10(), decimal(tick))).filter(|(place, _)| range.contains(place)).collect();
    let axis = Axis { name: "message rate, M messages/s", range, ticks };
    over_size(report, options, "RDMA WRITE: message rate over message size", &curves, &axis).map(Some)
}

/// Returns the limits and a curve for each number of QPs, with the `value` of goodput and size, unless there is one size only.
fn curves(report: &Report, options: &BenchOptions, value: impl Fn(f64, u32) -> f64) -> Option<Vec<Curve>> {
    let sizes = sizes(report);
    if sizes.len() < 2 {
        return None;
    }
    let point = |bytes: u32, gbps: f64| (f64::from(bytes).log2(), value(gbps, bytes));
    let mtu = options.mtu.into();
    let wire_grain = |bytes: u32| if bytes < options.mtu { 4 } else { options.mtu };
    let wire = whole(&sizes, wire_grain).into_iter().map(|bytes| point(bytes, limits::wire_gbps(bytes.into(), mtu)));
    let pcie_grain = |bytes: u32| match bytes {
        _ if bytes >= options.mtu => options.mtu,
        _ if u64::from(bytes) >= options.pcie.max_payload => options.pcie.max_payload as u32,
        64.. => 64,
        _ => (bytes + 1).next_power_of_two() / 2,
    };
    let pcie_gbps = |bytes: u32| limits::pcie_gbps(&traffic(bytes, options), &options.pcie);
    let pcie = whole(&sizes, pcie_grain).into_iter().map(|bytes| point(bytes, pcie_gbps(bytes)));
    let thin = |colour: RGBColor| colour.stroke_width(DOTS as u32 * 3 / 2);
    let mut curves = vec![
        Curve { name: "limit of the wire".into(), style: thin(INK), marks: None, points: wire.collect() },
        Curve { name: format!("limit of PCIe {}", report.pcie), style: thin(GREY), marks: None, points: pcie.collect() },
    ];
    for (index, qps) in sorted(report.points.iter().map(|point| point.qps)).into_iter().enumerate() {
        let points = report.points.iter().filter(|point| point.qps == qps).map(|found| point(found.message_bytes, found.gbps));
        // Where nothing arrived in the time, a logarithm has no place.
        let mut points: Vec<_> = points.filter(|(_, value)| value.is_finite()).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let style = LINES[index % LINES.len()].stroke_width(2 * DOTS as u32);
        curves.push(Curve { name: queue_pairs(qps), style, marks: Some(index), points });
    }
    Some(curves)
}

fn over_size(report: &Report, options: &BenchOptions, title: &str, curves: &[Curve], axis: &Axis) -> Result<String> {
    let settings = format!("{}, {}, {}", direction(options.both), signals(options.signal_every), path_settings(report, options));
    let (left, right) = (MARGIN + AXIS, WIDTH - MARGIN - 10);
    // The legend stands above, and its lines make the picture higher.
    let (mut entries, mut x, mut y) = (Vec::new(), left, 76);
    for curve in curves {
        let width = 44 + width(&curve.name, TEXT) + 16;
        if x + width > WIDTH && x > left {
            (x, y) = (left, y + 22);
        }
        entries.push((curve, (x, y)));
        x += width;
    }
    let (top, bottom) = (y + 22, y + 400);
    draw(bottom + 64, |root| {
        head(root, title, &settings)?;
        for (curve, (x, y)) in &entries {
            root.draw(&PathElement::new([dot((*x, *y)), dot((x + 36, *y))], curve.style))?;
            if let Some(index) = curve.marks {
                mark(root, index, dot((x + 18, *y)), curve.style.color)?;
            }
            label(root, &curve.name, TEXT, INK, (x + 44, *y), HPos::Left)?;
        }

        let sizes = sizes(report);
        let place = |bytes: u32| f64::from(bytes).log2();
        let (least, greatest) = (place(sizes[0]), place(sizes[sizes.len() - 1]));
        let scale = |share: f64, from: i32, to: i32| from * DOTS + (share * f64::from((to - from) * DOTS)).round() as i32;
        let at = |(x, y): (f64, f64)| {
            let (from, to) = (axis.range.start, axis.range.end);
            (scale((x - least) / (greatest - least), left, right), scale((y - from) / (to - from), bottom, top))
        };
        let line = |from, to, colour: RGBColor| root.draw(&PathElement::new([at(from), at(to)], colour.stroke_width(DOTS as u32)));
        for (y, text) in &axis.ticks {
            line((least, *y), (greatest, *y), GRID)?;
            label(root, text, TEXT, INK, (left - 8, at((least, *y)).1 / DOTS), HPos::Right)?;
        }
        for bytes in size_ticks(&sizes, right - left) {
            line((place(bytes), axis.range.start), (place(bytes), axis.range.end), GRID)?;
            let text = size(bytes);
            let x = (at((place(bytes), axis.range.start)).0 / DOTS).min(WIDTH - width(&text, TEXT) / 2);
            label(root, &text, TEXT, INK, (x, bottom + 16), HPos::Center)?;
        }
        line((least, axis.range.start), (greatest, axis.range.start), FAINT)?;
        line((least, axis.range.start), (least, axis.range.end), FAINT)?;
        label(root, "message size", TEXT, INK, ((left + right) / 2, bottom + 42), HPos::Center)?;
        let upright = font(TEXT, INK).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Center));
        root.draw_text(axis.name, &upright, dot((MARGIN - 2, (top + bottom) / 2)))?;

        // The limits last: they are thin, and lie on the lines of a card that reaches them.
        for curve in curves.iter().rev() {
            for part in below(&curve.points, axis.range.end) {
                root.draw(&PathElement::new(part.into_iter().map(at).collect::<Vec<_>>(), curve.style))?;
            }
        }
        for curve in curves {
            let Some(index) = curve.marks else { continue };
            for point in &curve.points {
                mark(root, index, at(*point), curve.style.color)?;
            }
        }
        Ok(())
    })
}

/// Draws a bar of stages for each latency.
fn latency(report: &Report, options: &BenchOptions) -> Result<Option<String>> {
    const BAR: i32 = 44;
    const ROW: i32 = 92;
    const LINE: i32 = 19;
    let Some(first) = report.latencies.first() else { return Ok(None) };
    let colours = colours(&first.stages);
    let count_in = |part: Part| first.stages.iter().filter(|stage| stage.part == part).count() as i32;
    let (left, right) = (MARGIN + 104, WIDTH - MARGIN - 108);
    let most = report.latencies.iter().map(Latency::clocks).max().unwrap_or(0).max(1);
    let at = |clocks: u64| left + (clocks as f64 * f64::from(right - left) / most as f64).round() as i32;
    let settings =
        format!("{}, link latency {} ns, 1 clock = {CLOCK_NS} ns", path_settings(report, options), thousands(report.link_latency_ns));

    let rows = 88;
    let axis = rows + report.latencies.len() as i32 * ROW - 16;
    let legend = axis + 76;
    let lines = PARTS.iter().map(|(_, part, _)| count_in(*part)).max().unwrap_or(0);
    let picture = draw(legend + lines * LINE + MARGIN, |root| {
        head(root, "RDMA WRITE: latency of one message on idle cards, from posting to polling", &settings)?;
        let line = |from, to| root.draw(&PathElement::new([dot(from), dot(to)], FAINT.stroke_width(DOTS as u32)));
        let step = tick_step(most);
        for clocks in (0..=most).step_by(step as usize) {
            line((at(clocks), axis), (at(clocks), axis + 5))?;
            label(root, &thousands(clocks), TEXT, INK, (at(clocks), axis + 16), HPos::Center)?;
        }
        line((left, axis), (right, axis))?;
        label(root, "clocks", TEXT, INK, ((left + right) / 2, axis + 38), HPos::Center)?;

        for (latency, top) in report.latencies.iter().zip((rows..).step_by(ROW as usize)) {
            let middle = top + BAR / 2;
            let name = size(latency.message_bytes);
            let name = if latency.inline { format!("{name}, inline") } else { name };
            label(root, &name, TEXT, INK, (left - 10, middle), HPos::Right)?;
            let (mut clocks, mut numbered) = (0, left);
            for (index, (stage, colour)) in latency.stages.iter().zip(&colours).enumerate() {
                let (from, to) = (at(clocks), at(clocks + stage.clocks));
                clocks += stage.clocks;
                rectangle(root, (from, top), (to, top + BAR), *colour)?;
                // Numbers stand where there is room; those that are missing follow from their neighbours.
                let (number, text, centre) = ((index + 1).to_string(), stage.clocks.to_string(), (from + to) / 2);
                let half = width(&number, TINY) / 2;
                if 2 * half < to - from + 2 && centre - half > numbered + 2 {
                    label(root, &number, TINY, FAINT, (centre, top - 9), HPos::Center)?;
                    numbered = centre + half;
                }
                if width(&text, SMALL) + 4 <= to - from {
                    label(root, &text, SMALL, on(*colour), (centre, middle), HPos::Center)?;
                }
            }
            let end = at(latency.clocks()) + 8;
            label(root, &format!("{} clocks", thousands(latency.clocks())), TEXT, INK, (end, middle - 10), HPos::Left)?;
            label(root, &format!("{} ns", thousands(latency.clocks() * CLOCK_NS)), TEXT, INK, (end, middle + 10), HPos::Left)?;
            let sums = PARTS.map(|(name, part, _)| format!("{name} {}", thousands(latency.clocks_in(part))));
            label(root, &sums.join(" + "), SMALL, FAINT, (left, top + BAR + 12), HPos::Left)?;
        }

        for ((name, part, hue), x) in PARTS.into_iter().zip([MARGIN, MARGIN + 310, MARGIN + 600]) {
            rectangle(root, (x, legend - 7), (x + 14, legend + 7), shade(hue, 0.4))?;
            label(root, name, TEXT, INK, (x + 20, legend), HPos::Left)?;
            let stages = first.stages.iter().zip(&colours).enumerate().filter(|(_, (stage, _))| stage.part == part);
            for ((index, (stage, colour)), y) in stages.zip((legend + LINE..).step_by(LINE as usize)) {
                rectangle(root, (x + 20, y - 6), (x + 32, y + 6), *colour)?;
                label(root, &format!("{}. {}", index + 1, stage.name), SMALL, INK, (x + 38, y), HPos::Left)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(picture))
}

/// Returns the stages' colours: shades of their part's, brighter and brighter.
fn colours(stages: &[Stage]) -> Vec<RGBColor> {
    let count = |stages: &[Stage], part: Part| stages.iter().filter(|stage| stage.part == part).count();
    let colour = |(index, stage): (usize, &Stage)| {
        let hue = PARTS.iter().find(|part| part.1 == stage.part).map_or([128; 3], |part| part.2);
        shade(hue, count(&stages[..index], stage.part) as f64 / (count(stages, stage.part).max(2) - 1) as f64)
    };
    stages.iter().enumerate().map(colour).collect()
}

/// Returns the picture, `height` high, that `paint` makes.
fn draw(height: i32, paint: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    let (wide, high) = (WIDTH * DOTS, height * DOTS);
    {
        let root = SVGBackend::with_string(&mut text, (wide as u32, high as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        paint(&root)?;
        root.present()?;
    }
    // Dots stay the unit inside.
    Ok(text.replacen(&format!("width=\"{wide}\" height=\"{high}\""), &format!("width=\"{WIDTH}\" height=\"{height}\""), 1))
}

fn head(root: &Area, title: &str, settings: &str) -> Result<()> {
    label(root, title, TITLE, INK, (MARGIN, 24), HPos::Left)?;
    label(root, settings, SMALL, FAINT, (MARGIN, 48), HPos::Left)
}

/// Returns what is sent with messages of `bytes` bytes.
fn traffic(bytes: u32, options: &BenchOptions) -> Traffic {
    let inline = options.inline && bytes as usize <= MAX_INLINE;
    Traffic { message: bytes.into(), mtu: options.mtu.into(), signal_every: options.signal_every.into(), both: options.both, inline }
}

/// Returns the settings that goodput and latency share.
fn path_settings(report: &Report, options: &BenchOptions) -> String {
    format!("path MTU {}, host latency {} ns, PCIe {}", options.mtu, thousands(report.host_latency_ns), report.pcie)
}

fn sizes(report: &Report) -> Vec<u32> {
    sorted(report.points.iter().map(|point| point.message_bytes))
}

fn font(height: i32, colour: RGBColor) -> TextStyle<'static> {
    // The backend takes a size for 1.24 times that of SVG.
    ("sans-serif", f64::from(height * DOTS) * 1.24).into_font().color(&colour)
}

/// Writes beside, or around, a place.
fn label(root: &Area, text: &str, height: i32, colour: RGBColor, at: (i32, i32), side: HPos) -> Result<()> {
    let style = font(height, colour).pos(Pos::new(side, VPos::Center));
    Ok(root.draw_text(text, &style, dot(at))?)
}

/// Returns how wide a text is at most, about: which font will be used is not known.
fn width(text: &str, height: i32) -> i32 {
    (text.chars().count() as f64 * 0.62 * f64::from(height)).ceil() as i32
}

/// Draws a point of line number `index`: lines differ in form, too.
fn mark(root: &Area, index: usize, at: (i32, i32), colour: RGBAColor) -> Result<()> {
    match index % 3 {
        0 => root.draw(&Circle::new(at, 6 * DOTS, colour.filled()))?,
        1 => root.draw(&TriangleMarker::new(at, 6 * DOTS, colour.filled()))?,
        _ => {
            let half = 4 * DOTS;
            root.draw(&Rectangle::new([(at.0 - half, at.1 - half), (at.0 + half, at.1 + half)], colour.filled()))?;
        }
    }
    Ok(())
}

fn dot((x, y): (i32, i32)) -> (i32, i32) {
    (x * DOTS, y * DOTS)
}

fn rectangle(root: &Area, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
    Ok(root.draw(&Rectangle::new([dot(from), dot(to)], colour.filled()))?)
}

/// Returns a colour between dark (0) and bright (1) of the hue of `base`.
fn shade(base: [u8; 3], brightness: f64) -> RGBColor {
    let [r, g, b] = base.map(|level| {
        let level = f64::from(level) * 0.8;
        (level + (255.0 - level) * 0.55 * brightness) as u8
    });
    RGBColor(r, g, b)
}

/// Returns what can be read on `colour`.
fn on(RGBColor(r, g, b): RGBColor) -> RGBColor {
    let brightness = 0.3 * f64::from(r) + 0.59 * f64::from(g) + 0.11 * f64::from(b);
    if brightness > 125.0 {
        BLACK
    } else {
        WHITE
    }
}

fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns the sizes at which a limit is drawn: those measured and, close to each other on the axis, multiples of the `grain` of
/// a size. In between a limit is a saw: a last packet, TLP or line that is not full costs as much as a full one.
fn whole(measured: &[u32], grain: impl Fn(u32) -> u32) -> Vec<u32> {
    const COUNT: u32 = 400;
    let [least, .., greatest] = measured[..] else { return measured.to_vec() };
    let ratio = f64::from(greatest) / f64::from(least);
    let bytes = (0..=COUNT).map(|step| (f64::from(least) * ratio.powf(f64::from(step) / f64::from(COUNT))) as u32);
    let bytes = bytes.map(|bytes| bytes / grain(bytes) * grain(bytes)).filter(|bytes| (least..=greatest).contains(bytes));
    sorted(bytes.chain(measured.iter().copied()))
}

/// Returns the parts of a curve that lie up to `top`.
fn below(points: &[(f64, f64)], top: f64) -> Vec<Vec<(f64, f64)>> {
    let mut all: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in points {
        if let Some((from, before)) = all.last().copied().filter(|last| (last.1 > top) != (y > top)) {
            all.push((from + (x - from) * (top - before) / (y - before), top));
        }
        all.push((x, y));
    }
    all.split(|point| point.1 > top).filter(|part| part.len() > 1).map(<[_]>::to_vec).collect()
}

/// Returns the sizes with a label on an axis of `room` pixels: measured ones, then powers of four where there is space.
fn size_ticks(measured: &[u32], room: i32) -> Vec<u32> {
    let [least, .., greatest] = measured[..] else { return measured.to_vec() };
    let apart = |one: u32, other: u32| (f64::from(one) / f64::from(other)).log2().abs();
    let scale = f64::from(room) / apart(greatest, least);
    let mut ticks = vec![least, greatest];
    let others = (0..16).map(|power| 1u32 << (2 * power)).filter(|bytes| (least..greatest).contains(bytes));
    for bytes in measured.iter().copied().chain(others) {
        let is_free = |tick: u32| apart(bytes, tick) * scale >= f64::from((width(&size(bytes), TEXT) + width(&size(tick), TEXT)) / 2 + 12);
        if ticks.iter().all(|tick| is_free(*tick)) {
            ticks.push(bytes);
        }
    }
    ticks.sort_unstable();
    ticks
}

/// Returns a size with its unit.
fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        _ if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        _ if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        _ => format!("{} B", thousands(bytes.into())),
    }
}

/// Returns a power of ten, or twice or five times one, with the digits it needs.
fn decimal(number: f64) -> String {
    let digits = (-(number.log10() + 1e-9).floor()).max(0.0) as usize;
    if digits == 0 {
        thousands(number.round() as u64)
    } else {
        format!("{number:.digits$}")
    }
}

/// Returns a round step of at most nine ticks from 0 to `most`.
fn tick_step(most: u64) -> u64 {
    let powers = std::iter::successors(Some(1u64), |power| power.checked_mul(10));
    powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit))).find(|step| most / step <= 8).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_sim::bench::{limit, Point};

    fn report(sizes: &[u32], qps: &[u32], stages: &[u64]) -> Report {
        let options = BenchOptions::default();
        let point = |qps: u32, bytes: u32| {
            let (gbps, bound) = limit(&traffic(bytes, &options), &options.pcie);
            Point {
                message_bytes: bytes,
                qps,
                mtu: options.mtu,
                both: options.both,
                inline: false,
                depth: 8,
                doorbell_every: 2,
                signal_every: options.signal_every,
                clocks: options.clocks,
                payload_bytes: 0,
                messages: 0.0,
                gbps,
                mmps: 0.0,
                wire_gbps: gbps,
                pcie_gbps: gbps,
                bound,
                share: 1.0,
                dropped: 0,
                stages: None,
            }
        };
        let stage = |(index, clocks): (usize, &u64)| Stage { name: "some stage", part: PARTS[index % 3].1, clocks: *clocks };
        Report {
            pcie: "gen3x16",
            host_latency_ns: 800,
            link_latency_ns: 500,
            seed: 1,
            points: qps.iter().flat_map(|qps| sizes.iter().map(|bytes| point(*qps, *bytes))).collect(),
            latencies: vec![Latency { message_bytes: 64, inline: false, stages: stages.iter().enumerate().map(stage).collect() }],
            clocks: 0,
            clocks_per_second: 0.0,
            svg: Vec::new(),
        }
    }

    fn assert_shows(picture: &str, labels: &[&str]) {
        assert!(picture.starts_with("<svg width=\"900\"") && picture.trim_end().ends_with("</svg>"), "{picture}");
        let tags = |mark: &str| picture.matches(mark).count();
        assert_eq!(tags("<text"), tags("</text>"));
        for label in labels {
            assert!(picture.contains(&format!("\n{label}\n</text>")), "{label} is missing in {picture}");
        }
        for bad in ["NaN", "inf", "-2147483648", "2147483647"] {
            assert!(!picture.contains(bad), "{bad} in {picture}");
        }
    }

    #[test]
    fn pictures_have_titles_names_and_units() {
        let directory = std::env::temp_dir().join(format!("verbena-plot-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let paths = write(&directory, &report(&[8, 64, 1024, 16 << 20], &[1, 16], &[75, 1020, 7]), &BenchOptions::default()).unwrap();
        let pictures: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(paths, ["goodput.svg", "rate.svg", "latency.svg"].map(|name| directory.join(name)));
        let settings = "one direction, one request in 16 signalled, path MTU 4096, host latency 800 ns, PCIe gen3x16";
        let common =
            ["8 B", "64 B", "1 KiB", "16 MiB", "1 QP", "16 QPs", "limit of the wire", "limit of PCIe gen3x16", "message size", settings];
        assert_shows(&pictures[0], &common);
        assert_shows(&pictures[0], &["goodput, Gb/s", "0", "100"]);
        assert_shows(&pictures[1], &common);
        assert_shows(&pictures[1], &["message rate, M messages/s", "100", "0.001"]);
        assert_shows(&pictures[2], &["64 B", "card", "host", "wire", "75", "1020", "1,102 clocks", "4,408 ns", "2. some stage", "clocks"]);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let directory = std::env::temp_dir();
        let one_size = Report { latencies: Vec::new(), ..report(&[64, 64], &[1, 16], &[]) };
        assert!(write(&directory, &one_size, &BenchOptions::default()).unwrap().is_empty());
        let nothing = Report { points: Vec::new(), ..one_size };
        assert!(write(&directory, &nothing, &BenchOptions::default()).unwrap().is_empty());
    }

    #[test]
    fn extremes_are_drawn() {
        let options = BenchOptions { mtu: 256, signal_every: 0, both: true, ..BenchOptions::default() };
        for sizes in [&[1, 2][..], &[1, 1 << 31], &[1000, 1001], &[4097, 1_048_575, 63]] {
            let mut report = report(sizes, &[1, 2, 4, 8, 16, 32, 64, 32_768], &[0, 0, 0]);
            // Nothing arrived in the time.
            report.points[0].gbps = 0.0;
            assert_shows(&goodput(&report, &options).unwrap().unwrap(), &["32768 QPs"]);
            assert_shows(&rate(&report, &options).unwrap().unwrap(), &["32768 QPs"]);
            assert_shows(&latency(&report, &options).unwrap().unwrap(), &["0 clocks"]);
        }
    }

    #[test]
    fn an_error_names_the_file() {
        let error = write(Path::new("/dev/null"), &report(&[8, 64], &[1], &[1]), &BenchOptions::default()).unwrap_err();
        assert!(format!("{error:#}").contains("goodput.svg"), "{error:#}");
    }

    #[test]
    fn a_curve_ends_where_it_leaves() {
        let curve = [(0.0, 0.0), (1.0, 20.0), (2.0, 0.0), (3.0, 10.0)];
        assert_eq!(below(&curve, 10.0), [vec![(0.0, 0.0), (0.5, 10.0)], vec![(1.5, 10.0), (2.0, 0.0), (3.0, 10.0)]]);
        assert_eq!(below(&curve, 100.0), [curve.to_vec()]);
    }

    #[test]
    fn ticks_have_room() {
        let sizes = [8, 64, 65, 256, 1 << 10, 1 << 20, 16 << 20];
        assert_eq!(size_ticks(&sizes, 800), [8, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 16 << 20]);
        assert_eq!(size_ticks(&[1000, 1001], 800), [1000, 1001]);
        assert_eq!([1, 8, 9, 1178, u64::MAX].map(tick_step), [1, 1, 2, 200, 5_000_000_000_000_000_000]);
    }

    #[test]
    fn numbers_are_written_as_people_do() {
        assert_eq!([8, 1000, 1024, 1536, 16 << 20, 1 << 31].map(size), ["8 B", "1,000 B", "1 KiB", "1,536 B", "16 MiB", "2 GiB"]);
        assert_eq!([0.0001, 0.02, 0.5, 1.0, 100.0, 1000.0].map(decimal), ["0.0001", "0.02", "0.5", "1", "100", "1,000"]);
    }
}
