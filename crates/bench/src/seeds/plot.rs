//! Plots of a report: horizontal bars, a group for each row, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 900;
const LABEL_WIDTH: u32 = 260;
const BAR_HEIGHT: u32 = 22;
const FRAME_HEIGHT: u32 = 98;
const FONT: &str = "sans-serif";
/// Distinguishable in print and without seeing red.
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 90, 160),
    RGBColor(230, 140, 20),
    RGBColor(110, 110, 110),
    RGBColor(90, 170, 220),
    RGBColor(150, 60, 120),
];

/// Bars that stand beside each other.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// The axis' quantity, with its unit.
    pub(crate) unit: &'static str,
    /// The bars of each group.
    pub(crate) series: Vec<String>,
    /// Label, and the value of each series, where there is one.
    pub(crate) groups: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    /// The picture; `None` without measurements.
    ///
    /// # Errors When it cannot be drawn.
    pub(crate) fn svg(&self) -> Result<Option<String>> {
        let values = self.groups.iter().flat_map(|(_, values)| values.iter().flatten());
        let most = values.copied().fold(0.0, f64::max);
        if most <= 0.0 {
            return Ok(None);
        }
        let mut svg = String::new();
        self.draw(&mut svg, most).map_err(|line| anyhow!("cannot draw {}: {line}", self.title))?;
        Ok(Some(svg))
    }

    fn draw(&self, svg: &mut String, most: f64) -> Result<(), String> {
        let text_of_error = |error: &dyn std::fmt::Display| error.to_string();
        let lines = u32::try_from(self.groups.len() * (self.series.len() + 1)).unwrap_or(100);
        let size = (WIDTH, lines * BAR_HEIGHT + FRAME_HEIGHT);
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|error| text_of_error(&error))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, (FONT, 18))
            .margin(8)
            .margin_right(40)
            .set_label_area_size(LabelAreaPosition::Bottom, 48)
            .set_label_area_size(LabelAreaPosition::Left, LABEL_WIDTH)
            .build_cartesian_2d(0.0..most * 1.15, f64::from(lines)..0.0)
            .map_err(|error| text_of_error(&error))?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_y_mesh().disable_y_axis().y_labels(0).x_desc(self.unit);
        mesh.max_light_lines(0).bold_line_style(RGBColor(220, 220, 220));
        mesh.x_labels(6).x_label_formatter(&|value| digits(*value));
        mesh.label_style((FONT, 13)).draw().map_err(|error| text_of_error(&error))?;
        let mut line = 0.5;
        for (label, values) in &self.groups {
            let style = (FONT, 13).into_font().color(&BLACK);
            let middle = line + f64::from(u32::try_from(values.len()).unwrap_or(1)) / 2.0;
            let left = chart.backend_coord(&(0.0, middle));
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            let text = Text::new(label.clone(), (left.0 - 6, left.1), style);
            root.draw(&text).map_err(|error| text_of_error(&error))?;
            for (index, value) in values.iter().enumerate() {
                let Some(value) = value else {
                    line += 1.0;
                    continue;
                };
                let color = COLORS[index % COLORS.len()];
                let corners = [(0.0, line + 0.08), (*value, line + 0.92)];
                let bar = std::iter::once(Rectangle::new(corners, color.filled()));
                chart.draw_series(bar).map_err(|error| text_of_error(&error))?;
                let end = chart.backend_coord(&(*value, line + 0.5));
                let style = (FONT, 12).into_font().color(&BLACK);
                let style = style.pos(Pos::new(HPos::Left, VPos::Center));
                let name = self.series.get(index).map_or("", String::as_str);
                let text = format!("{} {name}", digits(*value));
                let text = Text::new(text, (end.0 + 4, end.1), style);
                root.draw(&text).map_err(|error| text_of_error(&error))?;
                line += 1.0;
            }
            line += 1.0;
        }
        root.present().map_err(|error| text_of_error(&error))
    }
}

/// A number with significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => {
            let text = format!("{value:.0}");
            let (sign, text) =
                text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
            let mut parts: Vec<&str> = Vec::new();
            let mut rest = text;
            while rest.len() > 3 {
                let (leading, part) = rest.split_at(rest.len() - 3);
                parts.insert(0, part);
                rest = leading;
            }
            parts.insert(0, rest);
            format!("{sign}{}", parts.join(","))
        }
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_say_something() {
        let cases = [(1_234_567.8, "1,234,568"), (999.4, "999"), (12.34, "12.3"), (1.234, "1.23")];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
        assert_eq!((digits(0.0), digits(0.0123)), ("0".to_owned(), "0.012".to_owned()));
    }

    #[test]
    fn every_bar_has_its_name_and_its_number() {
        let bars = Bars {
            title: "reads".to_owned(),
            unit: "operations a second",
            series: vec!["shared".to_owned(), "separate".to_owned()],
            groups: vec![
                ("posix-aio".to_owned(), vec![Some(29_500.0), Some(133_000.0)]),
                ("pool & others".to_owned(), vec![Some(133_000.0), None]),
            ],
        };
        let svg = bars.svg().unwrap().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["29,500 shared", "133,000 separate", "posix-aio", "pool &amp; others", "reads"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let none = Bars { groups: vec![("none".to_owned(), vec![None])], ..bars };
        assert_eq!(none.svg().unwrap(), None);
    }
}
