# Interlock in an image, with what evaluators in shell need: bash, redis-cli and jq. `deploy/compose` builds it.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --bin interlock

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bash ca-certificates jq redis-tools tzdata \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/interlock interlock \
    && install --directory --owner interlock --group interlock /etc/interlock /etc/interlock/.interlock
COPY --from=build /src/target/dist/interlock /usr/local/bin/interlock
USER interlock
WORKDIR /etc/interlock
EXPOSE 8420
# Served while every loop comes round; nothing else is in the image that could ask.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8420 && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
# The first process: jobs end with it, and their outcome is then uncertain (docs/operating.md).
ENTRYPOINT ["interlock"]
CMD ["serve", "/etc/interlock", "--log", "json"]
