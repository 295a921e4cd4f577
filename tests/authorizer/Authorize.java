import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's StandardAuthorizer. The file has worlds: a line "world DEFAULT SUPERUSERS", lines "rule …" and lines
 * "ask …", with tabs. For each question it prints two digits: whether it is allowed by name, and on any resource.
 */
public class Authorize {
    private record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> rules = new HashMap<>();
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] cells = line.split("\t", -1);
            switch (cells[0]) {
                case "world" -> {
                    if (authorizer != null) authorizer.close();
                    authorizer = null;
                    rules = new HashMap<>();
                    configs = Map.of("allow.everyone.if.no.acl.found", cells[1], "super.users", cells[2]);
                }
                case "rule" -> rules.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(cells[1]), cells[2], PatternType.valueOf(cells[3]), cells[4], cells[5],
                    AclOperation.valueOf(cells[6]), AclPermissionType.valueOf(cells[7])));
                default -> {
                    if (authorizer == null) authorizer = load(rules);
                    out.append(ask(authorizer, cells)).append('\n');
                }
            }
        }
        System.out.print(out);
    }

    private static Map<String, String> configs = Map.of();

    private static StandardAuthorizer load(Map<Uuid, StandardAcl> rules) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(configs);
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.loadSnapshot(rules);
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static String ask(StandardAuthorizer authorizer, String[] cells) throws Exception {
        Client client = new Client(SecurityUtils.parseKafkaPrincipal(cells[1]), InetAddress.getByName(cells[2]));
        AclOperation operation = AclOperation.valueOf(cells[3]);
        ResourceType type = ResourceType.valueOf(cells[4]);
        List<Action> actions = new ArrayList<>();
        actions.add(new Action(operation, new ResourcePattern(type, cells[5], PatternType.LITERAL), 1, false, false));
        boolean byName = authorizer.authorize(client, actions).get(0) == AuthorizationResult.ALLOWED;
        boolean onAny = authorizer.authorizeByResourceType(client, operation, type) == AuthorizationResult.ALLOWED;
        return (byName ? "1" : "0") + (onAny ? "1" : "0");
    }
}
