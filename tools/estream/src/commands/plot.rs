//! The latency–memory picture of `tune --plot`: every feasible setting as a point, the front as a line, the chosen ones
//! marked. Plain SVG, written by hand: a few axes need no library.

use estream::size::human;
use estream_tune::{Choice, Profile};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const MARGIN: f64 = 70.0;
/// Colours of the candidates of G, in order.
const COLOURS: [&str; 8] =
    ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#777777", "#000000"];

/// The picture for a profile and the settings that were chosen.
#[must_use]
pub fn front(profile: &Profile, chosen: &[Choice]) -> String {
    let mut points: Vec<Choice> = profile.choices(u64::MAX / 2).collect();
    points.sort_by_key(|point| (point.memory_bytes, point.predicted_ns));
    let axes = Axes::over(&points);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    svg += &axes.draw();
    for point in &points {
        let rank = profile.groups.iter().position(|group| group.group == point.group).unwrap_or(0);
        let fill = if point.streamed { "none" } else { COLOURS[rank % COLOURS.len()] };
        svg += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{}\"><title>{}</title></circle>\n",
            axes.x(point),
            axes.y(point),
            COLOURS[rank % COLOURS.len()],
            label(point)
        );
    }
    let mut best = u64::MAX;
    let better = |point: &&Choice| {
        let better = point.predicted_ns < best;
        best = best.min(point.predicted_ns);
        better
    };
    let line: Vec<_> = points.iter().filter(better).collect();
    let corners: Vec<_> =
        line.iter().map(|point| format!("{:.1},{:.1}", axes.x(point), axes.y(point))).collect();
    svg += &format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"black\" stroke-width=\"1\"/>\n",
        corners.join(" ")
    );
    for choice in chosen {
        let (x, y) = (axes.x(choice), axes.y(choice));
        svg += &format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\" fill=\"none\" stroke=\"red\" stroke-width=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            x + 11.0,
            y - 8.0,
            label(choice)
        );
    }
    for (rank, group) in profile.groups.iter().enumerate() {
        let y = MARGIN + 16.0 * rank as f64;
        svg += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\">G = {}</text>\n",
            WIDTH - MARGIN,
            y - 4.0,
            COLOURS[rank % COLOURS.len()],
            WIDTH - MARGIN + 8.0,
            y,
            group.group
        );
    }
    svg + "</svg>\n"
}

fn label(choice: &Choice) -> String {
    let dense = if choice.streamed { ", dense streamed" } else { "" };
    format!(
        "G {} B {}{dense}: {}, {:.0} ms",
        choice.group,
        choice.banks,
        human(choice.memory_bytes),
        choice.predicted_ns as f64 / 1e6
    )
}

/// Memory to the right and time upwards, both from 0.
struct Axes {
    memory: f64,
    time: f64,
}

impl Axes {
    fn over(points: &[Choice]) -> Self {
        let most = |value: fn(&Choice) -> u64| points.iter().map(value).max().unwrap_or(1).max(1) as f64;
        Self {
            memory: 1.05 * most(|point| point.memory_bytes),
            time: 1.05 * most(|point| point.predicted_ns),
        }
    }

    fn x(&self, choice: &Choice) -> f64 {
        MARGIN + choice.memory_bytes as f64 / self.memory * (WIDTH - 2.5 * MARGIN)
    }

    fn y(&self, choice: &Choice) -> f64 {
        HEIGHT - MARGIN - choice.predicted_ns as f64 / self.time * (HEIGHT - 1.5 * MARGIN)
    }

    fn draw(&self) -> String {
        let (left, bottom) = (MARGIN, HEIGHT - MARGIN);
        let mut svg = format!(
            "<path d=\"M{left} {} V{bottom} H{}\" fill=\"none\" stroke=\"black\"/>\n\
             <text x=\"{left}\" y=\"{}\">memory of the session</text>\n\
             <text x=\"8\" y=\"{}\">predicted time of the request</text>\n",
            MARGIN / 2.0,
            WIDTH - 1.5 * MARGIN,
            HEIGHT - 20.0,
            MARGIN / 2.0 - 8.0
        );
        for step in 1..=4 {
            let share = f64::from(step) / 4.0;
            let memory = human((share * self.memory) as u64);
            let time = share * self.time / 1e6;
            let (x, y) = (left + share * (WIDTH - 2.5 * MARGIN), bottom - share * (HEIGHT - 1.5 * MARGIN));
            svg += &format!("<text x=\"{:.1}\" y=\"{:.1}\">{memory}</text>\n", x - 24.0, bottom + 18.0);
            svg += &format!("<text x=\"8\" y=\"{:.1}\">{time:.0} ms</text>\n", y + 4.0);
        }
        svg
    }
}
