//! Wrong command lines, and what no output may contain.

use super::*;

#[tokio::test]
async fn wrong_command_lines_exit_with_64() {
    let server = RedisServer::start().await;
    let url = server.url();
    for words in [
        &["--url", url.as_str(), "run"] as &[&str],
        &["--url", &url, "run", "job"],
        &["--url", &url, "run", "job", "--wait", "5", "--", "true"],
        &["--url", &url, "run", "job", "--kind", "odd", "--", "true"],
        &["--url", &url, "run", "", "--", "true"],
        &["--url", &url, "run", "job", "--lease", "0", "--", "true"],
        &[
            "--url",
            &url,
            "run",
            "job",
            "--tls-ca",
            "/no/such/file",
            "--",
            "true",
        ],
        &[
            "--url",
            "http://:hush@localhost",
            "run",
            "job",
            "--",
            "true",
        ],
        &["--url", "", "run", "job", "--", "true"],
        &["run", "job", "--", "true"],
        &["fly"],
        &[],
    ] {
        let output = plain_output(words.iter().copied()).await;
        assert_eq!(
            output.status.code(),
            Some(64),
            "{words:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{words:?}");
        let said = stderr(&output);
        assert!(
            !said.is_empty() && !said.contains("hush"),
            "{words:?}: {said}"
        );
    }
}

#[tokio::test]
async fn help_and_version_exit_with_0_and_show_no_password() {
    for words in [&["--help"] as &[&str], &["--version"], &["run", "--help"]] {
        let mut command = program(PROGRAM);
        command
            .args(words)
            .env("REDIS_URL", "redis://:hush@localhost");
        let output = command.output().await.unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(!stdout(&output).is_empty() && !stdout(&output).contains("hush"));
    }
}

#[tokio::test]
async fn url_comes_from_the_environment_and_a_wrong_password_exits_with_77() {
    let server = RedisServer::builder()
        .credentials("shop", "right")
        .start()
        .await;
    let run = |url: String| async move {
        let mut command = program(PROGRAM);
        command
            .args(["run", "job", "--", "true"])
            .env("REDIS_URL", url);
        command.output().await.unwrap()
    };
    let right = run(server.url()).await;
    assert_eq!(right.status.code(), Some(0), "{}", stderr(&right));
    let wrong = run(server.url().replace("right", "hush")).await;
    assert_eq!(wrong.status.code(), Some(77), "{}", stderr(&wrong));
    assert!(!stderr(&wrong).contains("hush"), "{}", stderr(&wrong));
}
