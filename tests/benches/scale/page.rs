//! Writes a curve into `SCALE.md`, between two comments with its name, and its plot beside it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::curve::Curve;
use crate::plot;

/// # Panics
/// If the page has no place for this curve.
pub(crate) fn write(curve: &Curve) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let image = format!("scale/plots/{}.svg", curve.name);
    fs::write(folder.join(&image), plot::svg(curve)).unwrap();
    let path = folder.join("SCALE.md");
    let page = fs::read_to_string(&path).unwrap();
    let [begin, end] = ["", "/"].map(|slash| format!("<!-- {slash}{} -->", curve.name));
    let parts = page
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.unwrap_or_else(|| panic!("SCALE.md has no {begin}"));
    let title = curve.title;
    let measured = measured();
    let text = format!("{before}{begin}\n![{title}]({image})\n\n{curve}\n{measured}\n{end}{after}");
    fs::write(&path, text).unwrap();
}

/// When and on what, and how busy it was.
fn measured() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let day = now.split('T').next().unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = of_system("/proc/cpuinfo", |text| {
        let name = text.lines().find(|line| line.starts_with("model name"))?;
        Some(name.split_once(": ")?.1.to_owned())
    });
    let load = of_system("/proc/loadavg", |text| {
        Some(text.split(' ').next()?.to_owned())
    });
    format!("Measured on {day} on {cores} cores ({cpu}). Load average of the last minute: {load}.")
}

fn of_system(file: &str, find: impl Fn(&str) -> Option<String>) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    find(&text).unwrap_or_else(|| "unknown".to_owned())
}
