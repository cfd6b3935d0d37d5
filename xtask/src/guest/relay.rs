//! Threads that carry bytes between the guest's ports and this process, and tell the main thread
//! of everything that happens as one queue of events.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write},
    os::unix::net::UnixStream,
    sync::mpsc::Sender,
    thread,
};

use lazyfree_vm::report::Report;

/// The key that ends a guest from its terminal, as in telnet: Ctrl-].
pub const ESCAPE: u8 = 0x1d;

/// How many ports are read, each by a thread of its own.
pub const PORTS: usize = 3;

/// Which of the command's two streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    Output,
    Error,
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// So many bytes of a stream have arrived in all, and were written on.
    Received(Stream, u64),
    /// One of the [`PORTS`] was closed: qemu ended.
    Closed,
    /// What arrived could not be written on.
    Unwritable(io::Error),
    /// The guest reported.
    Report(Report),
    /// A line on the report port that is no report.
    Garbled(String),
    /// The user asked at the keyboard to end the guest.
    Escape,
    /// This process got a signal.
    Signal(i32),
}

/// Carries one stream to a writer.
pub fn forward(
    stream: Stream,
    mut from: UnixStream,
    mut to: impl Write + Send + 'static,
    events: Sender<Event>,
) -> thread::JoinHandle<()> {
    // Nobody listens once the guest is given up, so failing to send is no failure.
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        let mut total = 0;
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if let Err(error) = to.write_all(&buffer[..length]).and_then(|()| to.flush()) {
                let _ = events.send(Event::Unwritable(error));
                return;
            }
            total += length as u64;
            let _ = events.send(Event::Received(stream, total));
        }
        let _ = events.send(Event::Closed);
    })
}

/// Reads reports.
pub fn listen(from: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = events.send(match Report::parse(&line) {
                Some(report) => Event::Report(report),
                None => Event::Garbled(line),
            });
        }
        let _ = events.send(Event::Closed);
    });
}

/// Carries what is typed to the guest's terminal.
pub fn type_into(mut to: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        let mut buffer = [0; 4 << 10];
        let mut stdin = io::stdin().lock();
        while let Ok(length @ 1..) = stdin.read(&mut buffer) {
            let typed = &buffer[..length];
            if typed.contains(&ESCAPE) {
                let _ = events.send(Event::Escape);
                return;
            }
            if to.write_all(typed).is_err() {
                return;
            }
        }
    });
}
