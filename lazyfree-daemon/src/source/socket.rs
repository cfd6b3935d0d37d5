//! A daemon's samples over its local socket: one JSON line with the session, then one a sample.
//!
//! Both ends are here: [`Server`] hands out lines, [`Remote`] is the [`Source`] that reads them.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    sync::broadcast::{self, error::RecvError},
    time::timeout,
};

use super::Source;
use crate::sample::{Sample, Session};

/// Where root's daemon listens unless it is told otherwise.
pub const SYSTEM_PATH: &str = "/run/lazyfree/lazyfree.sock";

/// Where a daemon listens that this user starts. `runtime_dir` is the value of `XDG_RUNTIME_DIR`:
/// `None` for a user who isn't root and has no such folder.
pub fn own_path(is_root: bool, runtime_dir: Option<&OsStr>) -> Option<PathBuf> {
    if is_root {
        return Some(SYSTEM_PATH.into());
    }
    // The XDG Base Directory Specification asks to ignore one that isn't absolute.
    let folder = runtime_dir.map(Path::new).filter(|folder| folder.is_absolute())?;
    Some(folder.join("lazyfree/lazyfree.sock"))
}

/// Where this user may find a daemon, in the order to try: their own, then root's.
pub fn paths_to_try(is_root: bool, runtime_dir: Option<&OsStr>) -> Vec<PathBuf> {
    let others = (!is_root).then(|| SYSTEM_PATH.into());
    own_path(is_root, runtime_dir).into_iter().chain(others).collect()
}

/// A reader that takes longer than this for a line is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// Readers at once.
const MAX_READERS: usize = 32;

/// Samples that a slow reader may lag behind before it loses some.
pub const BACKLOG: usize = 8;

/// The daemon's end. The socket file is removed when it is dropped.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Starts listening. A socket file that nobody listens on any more is replaced.
    pub async fn bind(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| {
                format!("cannot create {}; choose another place with --socket", folder.display())
            })?;
        }
        if UnixStream::connect(path).await.is_ok() {
            bail!("another lazyfree already listens on {shown}; choose another with --socket");
        }
        match fs::symlink_metadata(path) {
            Ok(old) if old.file_type().is_socket() => {
                fs::remove_file(path)
                    .with_context(|| format!("cannot remove the stale {shown}"))?;
            }
            Ok(_) => bail!("{shown} is in the way and is no socket; choose another with --socket"),
            Err(_absent) => {}
        }
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on {shown}; choose another with --socket"))?;
        // Samples name processes: for the owner and the owner's group only.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))
            .with_context(|| format!("cannot set the permissions of {shown}"))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves until dropped: `session` is the first line of each reader, `samples` the others.
    pub async fn serve(&self, session: Arc<str>, samples: &broadcast::Sender<Arc<str>>) {
        let readers = Arc::new(tokio::sync::Semaphore::new(MAX_READERS));
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept on {}: {error}", self.path.display());
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&readers).try_acquire_owned() else { continue };
            let (session, samples) = (Arc::clone(&session), samples.subscribe());
            tokio::spawn(async move {
                if let Err(error) = feed(stream, session, samples).await {
                    tracing::debug!("a reader of the socket is gone: {error}");
                }
                drop(permit);
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

async fn feed(
    mut stream: UnixStream,
    session: Arc<str>,
    mut samples: broadcast::Receiver<Arc<str>>,
) -> io::Result<()> {
    let mut line = session;
    loop {
        timeout(PATIENCE, stream.write_all(line.as_bytes()))
            .await
            .map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        line = loop {
            match samples.recv().await {
                Ok(line) => break line,
                // Samples are cumulative: a reader that lost some loses nothing but detail.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Ok(()),
            }
        };
    }
}

/// A line of the socket.
pub fn line(value: &impl serde::Serialize) -> serde_json::Result<Arc<str>> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(line.into())
}

/// The reader's end.
pub struct Remote {
    lines: Lines<BufReader<OwnedReadHalf>>,
    session: Arc<Session>,
}

impl Remote {
    /// Connects; `Ok(None)` if nobody listens there.
    pub async fn connect(path: &Path) -> anyhow::Result<Option<Self>> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) => {
                use io::ErrorKind::{ConnectionRefused, NotFound};
                return match error.kind() {
                    NotFound | ConnectionRefused => Ok(None),
                    _ => {
                        Err(error).with_context(|| format!("cannot connect to {}", path.display()))
                    }
                };
            }
        };
        let mut lines = BufReader::new(stream.into_split().0).lines();
        let greeting = timeout(PATIENCE, lines.next_line())
            .await
            .with_context(|| format!("the daemon on {} says nothing", path.display()))??;
        let Some(greeting) = greeting else {
            bail!("the daemon on {} closed the connection", path.display());
        };
        let session = serde_json::from_str(&greeting).with_context(|| {
            format!("the daemon on {} speaks another version of lazyfree", path.display())
        })?;
        Ok(Some(Self { lines, session: Arc::new(session) }))
    }
}

impl Source for Remote {
    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    async fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let Some(line) = self.lines.next_line().await.context("lost the daemon")? else {
            return Ok(None);
        };
        serde_json::from_str(&line).map(Some).context("the daemon sent what is no sample")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            dependent_on_lru: Vec::new(),
            kernel: "6.1.0".to_owned(),
            host: "guest".to_owned(),
            page_size: 4096,
            cpus: 2,
            mode: "fentry".to_owned(),
            signals: Vec::new(),
            stalls: Vec::new(),
            hooks: Vec::new(),
            facts: Vec::new(),
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn root_listens_for_all_and_others_for_themselves() {
        let folder = Some(OsStr::new("/run/user/1000"));
        let own = PathBuf::from("/run/user/1000/lazyfree/lazyfree.sock");
        let system = PathBuf::from("/run/lazyfree/lazyfree.sock");
        assert_eq!(own_path(true, folder), Some(system.clone()));
        assert_eq!(own_path(true, None), Some(system.clone()));
        assert_eq!(own_path(false, folder), Some(own.clone()));
        assert_eq!(paths_to_try(true, folder), [SYSTEM_PATH].map(PathBuf::from));
        assert_eq!(paths_to_try(false, folder), [own, system]);
    }

    #[test]
    fn without_a_folder_for_it_a_user_has_no_socket() {
        for folder in [None, Some(OsStr::new("")), Some(OsStr::new("run/user"))] {
            assert_eq!(own_path(false, folder), None);
            assert_eq!(paths_to_try(false, folder), [PathBuf::from(SYSTEM_PATH)]);
        }
    }

    #[test]
    fn a_reader_gets_the_session_and_then_each_sample() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        runtime().block_on(async {
            let server = Server::bind(&path).await.unwrap();
            let (samples, _) = broadcast::channel(BACKLOG);
            let greeting = line(&session()).unwrap();
            let serving = server.serve(greeting, &samples);
            let reading = async {
                let mut remote = Remote::connect(&path).await.unwrap().unwrap();
                assert_eq!(*remote.session(), session());
                let sample = Sample { time_ns: 7, mem_free_kb: 3, ..Sample::default() };
                samples.send(line(&sample).unwrap()).unwrap();
                assert_eq!(remote.next().await.unwrap(), Some(sample));
            };
            tokio::select! {
                () = serving => unreachable!("the server runs until it is dropped"),
                () = reading => {}
            }
        });
        assert!(!path.exists(), "the socket file is removed");
    }

    #[test]
    fn a_second_daemon_is_told_and_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        runtime().block_on(async {
            let stale = std::os::unix::net::UnixListener::bind(&path).unwrap();
            drop(stale);
            assert!(Remote::connect(&path).await.unwrap().is_none());
            let _server = Server::bind(&path).await.unwrap();
            let error = Server::bind(&path).await.err().unwrap().to_string();
            assert!(error.contains("another lazyfree") && error.contains("--socket"), "{error}");
        });
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        runtime().block_on(async {
            assert!(Server::bind(&path).await.is_err());
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
