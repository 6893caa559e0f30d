//! `watch`: the locks under a pattern, shown repeatedly.

use std::io::{self, IsTerminal, Read};
use std::pin::pin;
use std::time::Duration;
use std::{mem, thread};

use distlock::{Client, Error, KeyReport};
use futures_util::{Stream, StreamExt, stream};
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::args::{List, Watch};
use crate::exit::{Failed, Status};
use crate::look::{End, Look};
use crate::report::Table;
use crate::signals::Signals;
use crate::{ls, output, report, terminal};

/// The other screen of the terminal, without a cursor, and with lines that end at the edge: one with characters of double width would
/// take a second line otherwise, and the first lines would leave the screen. And back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// To the first line; and the end of a line, and of the screen, without what was there.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END_OF_SCREEN: &str = "\x1b[J";

/// Shows the locks until `q` or Ctrl-C. Without a terminal it shows them once. Returns the exit status.
pub(crate) async fn watch(client: &Client, args: &Watch, json: bool) -> Result<u8, Failed> {
    if json || !io::stdout().is_terminal() {
        let list = List {
            looked: args.looked.clone(),
            limit: args.limit,
            wide: true,
        };
        return ls::list(client, &list, json).await;
    }
    let software = |error: io::Error| Failed::new(Status::Software, error);
    let mut signals = Signals::listen().map_err(software)?;
    let mut resized = signal(SignalKind::window_change()).map_err(software)?;
    let mut stopped = signal(SignalKind::from_raw(Signal::TSTP.as_raw())).map_err(software)?;
    let screen = Screen::enter()?;
    let mut keys = keys();
    let mut picture = Picture::default();
    let mut looks = pin!(looks(client, args));
    loop {
        draw(args, &picture)?;
        tokio::select! {
            // A person who wants to end it, or a window that changed, is not kept waiting by a server.
            biased;
            signal = signals.next() => return Ok(match signal {
                Signal::INT => 0,
                signal => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            }),
            // A narrower pattern would turn the branch off at any other key.
            Some(key) = keys.recv() => {
                if matches!(key, b'q' | b'Q') {
                    return Ok(0);
                }
            }
            _ = resized.recv() => {}
            _ = stopped.recv() => screen.stop()?,
            Some(news) = looks.next() => picture.take(news),
        }
    }
}

/// What a look has to tell.
enum News {
    /// More locks.
    Found(Vec<KeyReport>),
    /// It has ended.
    Ended(Result<End, Error>),
}

/// One look after the other. Each waits for as long as the one before took, or for the interval if that is longer.
fn looks<'a>(client: &'a Client, args: &'a Watch) -> impl Stream<Item = News> + 'a {
    let start = || (Look::new(client, &args.looked, args.limit), Instant::now());
    let state = (start(), Duration::ZERO);
    stream::unfold(state, move |((mut look, mut since), pause)| async move {
        if !pause.is_zero() {
            sleep(pause).await;
            (look, since) = start();
        }
        loop {
            let ended = match look.next().await {
                // Nothing to draw.
                Ok(Some(page)) if page.is_empty() => continue,
                Ok(Some(page)) => {
                    return Some((News::Found(page), ((look, since), Duration::ZERO)));
                }
                Ok(None) => Ok(look.end()),
                Err(error) => Err(error),
            };
            let pause = args.interval.max(since.elapsed());
            return Some((News::Ended(ended), ((look, since), pause)));
        }
    })
}

/// What is on the screen.
#[derive(Default)]
struct Picture {
    /// The last look that has ended.
    last: Option<Result<(Vec<KeyReport>, End), Error>>,
    /// What the present one has found so far.
    found: Vec<KeyReport>,
}

impl Picture {
    fn take(&mut self, news: News) {
        match news {
            News::Found(page) => {
                self.found.extend(page);
                self.found.sort_by(|one, other| one.key.cmp(&other.key));
            }
            News::Ended(ended) => {
                let found = mem::take(&mut self.found);
                self.last = Some(ended.map(|end| (found, end)));
            }
        }
    }
}

fn draw(args: &Watch, picture: &Picture) -> Result<(), Failed> {
    let (columns, rows) = match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    };
    let every = report::time(args.interval);
    let mut lines = vec![format!(
        "{}  every {every}, q ends",
        output::plain(&args.looked.pattern)
    )];
    let (found, more) = match &picture.last {
        None => (&picture.found, " so far".to_owned()),
        Some(Ok((found, End::Over))) => (found, String::new()),
        Some(Ok((found, End::Limit))) => (found, " or more".to_owned()),
        Some(Ok((found, End::MostKeys(keys)))) => (found, format!(" in the first {keys} keys")),
        Some(Err(_)) => (&picture.found, String::new()),
    };
    let is_error = match &picture.last {
        // It may be back at the next look.
        Some(Err(error)) => {
            lines.push(output::plain(&error.to_string()));
            true
        }
        _ => {
            lines[0] += &format!("  {} locks{more}", found.len());
            let rows: Vec<_> = found.iter().map(report::row).collect();
            lines.extend(Table::new(Some(columns)).lines(&rows));
            false
        }
    };
    let shown = lines
        .iter()
        .take(rows)
        .map(|line| line.chars().take(columns));
    let mut shown: Vec<String> = shown.map(Iterator::collect).collect();
    // After the lines are cut, since a colour has no width.
    let paint = terminal::stdout();
    match shown.get_mut(1) {
        Some(error) if is_error => *error = paint.red(error),
        Some(heads) => *heads = paint.bold(heads),
        None => {}
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

/// The other screen of the terminal, without an echo and without waiting for the end of a line, until this is dropped. It has the modes
/// that the terminal had before.
struct Screen(Option<Termios>);

impl Screen {
    fn enter() -> Result<Self, Failed> {
        let screen = Self(tcgetattr(stdin()).ok());
        screen.show()?;
        Ok(screen)
    }

    fn show(&self) -> Result<(), Failed> {
        if let Some(before) = &self.0 {
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Without it, `q` needs an Enter.
            let _set = tcsetattr(stdin(), OptionalActions::Now, &modes);
        }
        output::text(ENTER)
    }

    fn leave(&self) {
        let _written = output::text(LEAVE);
        if let Some(before) = &self.0 {
            let _set = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }

    /// Leaves the screen to the shell until it continues this process, as after Ctrl-Z.
    fn stop(&self) -> Result<(), Failed> {
        self.leave();
        // It stops this process as SIGTSTP does, which has a handler by now. Unlike SIGSTOP it does nothing where no shell could
        // continue this process.
        let _sent = kill_process(getpid(), Signal::TTIN);
        self.show()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}
