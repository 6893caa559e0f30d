//! `watch`: the locks under a pattern, again and again.

use std::io::{self, IsTerminal, Read};
use std::thread;

use distlock::{Client, Error, KeyReport};
use rustix::process::Signal;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::args::{List, Watch};
use crate::exit::{Failed, Status};
use crate::signals::Signals;
use crate::{ls, output, report, terminal};

/// The other screen of the terminal, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// To the first line; and the end of a line, and of the screen, without what was there.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END_OF_SCREEN: &str = "\x1b[J";

/// Shows the locks until `q` or Ctrl-C. Without a terminal it shows them once. Returns the exit status.
pub(crate) async fn watch(client: &Client, args: &Watch, json: bool) -> Result<u8, Failed> {
    if json || !io::stdout().is_terminal() {
        let list = List {
            pattern: args.pattern.clone(),
            limit: args.limit,
            wide: true,
        };
        return ls::list(client, &list, json).await;
    }
    let software = |error: io::Error| Failed::new(Status::Software, error);
    let mut signals = Signals::listen().map_err(software)?;
    let mut resized = signal(SignalKind::window_change()).map_err(software)?;
    let _screen = Screen::enter()?;
    let mut keys = keys();
    let mut ticks = interval(args.interval);
    let mut seen = ls::find(client, &args.pattern, args.limit).await;
    loop {
        draw(args, &seen)?;
        tokio::select! {
            _ = ticks.tick() => seen = ls::find(client, &args.pattern, args.limit).await,
            _ = resized.recv() => {}
            Some(b'q' | b'Q') = keys.recv() => return Ok(0),
            signal = signals.next() => return Ok(match signal {
                Signal::INT => 0,
                signal => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            }),
        }
    }
}

fn draw(args: &Watch, seen: &Result<(Vec<KeyReport>, bool), Error>) -> Result<(), Failed> {
    let (columns, rows) = match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    };
    let every = report::time(args.interval);
    let mut lines = vec![format!(
        "{}  every {every}, q ends",
        output::plain(&args.pattern)
    )];
    match seen {
        Ok((found, is_cut)) => {
            let more = if *is_cut { " or more" } else { "" };
            lines[0] += &format!("  {}{more} locks", found.len());
            let rows: Vec<_> = found.iter().map(report::row).collect();
            lines.extend(report::table(&rows, Some(columns)));
        }
        // It may be back at the next look.
        Err(error) => lines.push(output::plain(&error.to_string())),
    }
    let shown = lines
        .iter()
        .take(rows)
        .map(|line| line.chars().take(columns));
    let mut shown: Vec<String> = shown.map(Iterator::collect).collect();
    // After the lines are cut, since a colour has no width.
    let paint = terminal::stdout();
    match (seen, shown.get_mut(1)) {
        (Ok(_), Some(heads)) => *heads = paint.bold(heads),
        (Err(_), Some(error)) => *error = paint.red(error),
        (_, None) => {}
    }
    // Without an end of line after the last one, which would scroll.
    let text = shown.join(END_OF_LINE);
    output::text(&format!("{HOME}{text}\x1b[K{END_OF_SCREEN}"))
}

/// What is typed. A thread reads it, because a terminal that does not block would not block for other programs either.
fn keys() -> mpsc::UnboundedReceiver<u8> {
    let (sender, keys) = mpsc::unbounded_channel();
    if io::stdin().is_terminal() {
        // It ends with the program.
        thread::spawn(move || {
            for byte in io::stdin().lock().bytes() {
                if byte.is_err() || byte.is_ok_and(|byte| sender.send(byte).is_err()) {
                    return;
                }
            }
        });
    }
    keys
}

/// The terminal without an echo and without waiting for the end of a line, until this is dropped.
struct Screen(Option<Termios>);

impl Screen {
    fn enter() -> Result<Self, Failed> {
        let before = tcgetattr(stdin()).ok();
        if let Some(before) = &before {
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Without it, `q` needs an Enter.
            let _set = tcsetattr(stdin(), OptionalActions::Now, &modes);
        }
        let screen = Self(before);
        output::text(ENTER)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _written = output::text(LEAVE);
        if let Some(before) = &self.0 {
            let _set = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}
