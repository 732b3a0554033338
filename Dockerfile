# The service as an image: compiled in the first stage, shipped without compiler or npm cache in the second.
#   docker build -t taisce-notify .
#   docker run -e DATABASE_URL=postgres://… -e TAISCE_NOTIFY_DESTINATIONS=… -p 8080:8080 taisce-notify
# Other commands take serve's place: docker run … taisce-notify migrate

FROM node:24-bookworm-slim AS build

# What ships: no dev dependencies, and no optional ones, as the embedded PostgreSQL is not for a container.
# Its own directory, so that it is copied whole and a change of the sources leaves this layer as it is.
WORKDIR /production
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

# What builds. Without install scripts: the compiler needs none, and the `node` dev dependency would
# use its own to fetch a second Node.
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY src src
RUN npm run build
COPY migrations migrations
COPY triggers triggers
COPY LICENSE ./
# Readable by the unprivileged user whatever the umask of the checkout was.
RUN chmod -R a+rX dist migrations triggers package.json LICENSE

FROM node:24-bookworm-slim

# Loopback, the default elsewhere, would not be reachable from outside the container.
ENV NODE_ENV=production \
    TAISCE_HOST=0.0.0.0

# Everything stays root's: the running service can read its code and not change it.
WORKDIR /app
COPY --from=build /production/node_modules node_modules
COPY --from=build /build/package.json /build/LICENSE ./
COPY --from=build /build/migrations migrations
COPY --from=build /build/triggers triggers
COPY --from=build /build/dist dist

# `node` in the base image; by number, because Kubernetes' runAsNonRoot cannot judge a name.
USER 1000:1000
EXPOSE 8080

# Node itself asks, there is no curl in slim. Answers by exit code; the reason is in `docker inspect`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.TAISCE_PORT || 8080}/health`, { signal: AbortSignal.timeout(4000) }).then((r) => { console.log(r.status); process.exit(r.ok ? 0 : 1); }, (e) => { console.log(String(e.cause ?? e)); process.exit(1); })"]

# Exec form, no shell and no npm between: the service is process 1 and gets SIGTERM itself.
ENTRYPOINT ["node", "/app/dist/cli/main.js"]
CMD ["serve"]

# Last, because they change with every release: docker build --build-arg VERSION=… --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="taisce-notify" \
      org.opencontainers.image.description="Tells a project's HTTPS endpoints, within milliseconds, that its memory formed." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
