import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import org.apache.hadoop.hive.metastore.HiveMetaStore;

/** Hive's metastore over Derby; Hive makes its tables but for those of locks, which its schema tool makes. */
public class HiveServer {
    private static final String[] LOCKS = {
        """
        CREATE TABLE HIVE_LOCKS (
            HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint NOT NULL,
            HL_DB varchar(128) NOT NULL, HL_TABLE varchar(256), HL_PARTITION varchar(767),
            HL_LOCK_STATE char(1) NOT NULL, HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL,
            HL_ACQUIRED_AT bigint, HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL,
            HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128),
            HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID))""",
        "CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL)",
        "INSERT INTO NEXT_LOCK_ID VALUES (1)",
    };

    /** Arguments: a folder that is new, and a port. */
    public static void main(String[] arguments) throws Throwable {
        String url = "jdbc:derby:;databaseName=" + arguments[0] + "/db;create=true";
        System.setProperty("javax.jdo.option.ConnectionURL", url);
        System.setProperty("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        System.setProperty("datanucleus.schema.autoCreateAll", "true");
        System.setProperty("metastore.schema.verification", "false");
        System.setProperty("metastore.warehouse.dir", "file://" + arguments[0] + "/warehouse");
        try (Connection connection = DriverManager.getConnection(url);
                Statement statement = connection.createStatement()) {
            for (String sql : LOCKS) {
                statement.execute(sql);
            }
        }
        HiveMetaStore.main(new String[] {"-p", arguments[1]});
    }
}
